package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func TestAnImportSetsEverySKU(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var lines strings.Builder
	lines.WriteString("\ufeffsku,available\r\n")
	const n = 3*toldPage + 1
	for i := range n {
		fmt.Fprintf(&lines, "sku-%d,%d\r\n", i, i)
	}
	for range 2 { // the same file again is safe
		b.ok(fmt.Sprintf(`{"skus":%d}`, n), "POST", "/v1/stock/import", lines.String())
	}
	if len(b.skus) != n || b.skus["sku-0"].Available != 0 || b.skus["sku-768"].Available != 768 {
		t.Fatalf("%d SKUs, the last has %+v", len(b.skus), b.skus["sku-768"])
	}
	if op := b.executed()[0]; op.Reason != "import" || op.Actor != "loopback" {
		t.Fatalf("%+v", op)
	}
	b.ok(`{"skus":1}`, "POST", "/v1/stock/import", "sku,1") // a SKU may be called sku
	b.ok(`{"skus":1}`, "POST", "/v1/stock/import", "SKU,Available\na,1\n")
	for _, quoted := range []string{"\ufeff\"sku\",\"available\"\r\n\"a\",\"1\"\r\n", "\ufeff\"a\",1"} { // as spreadsheets save it
		b.ok(`{"skus":1}`, "POST", "/v1/stock/import", quoted)
	}
	for _, empty := range []string{"", "\n\n", "sku,available\n", "\ufeff"} {
		b.refused(stock.CodeBadRequest, "", "POST", "/v1/stock/import", empty)
	}
	b.refused(stock.CodeBadRequest, "the import is empty", "POST", "/v1/stock/import", "Sku,available")
}

func TestC006_AnImportWithOneBadLineChangesNothingAndNamesThemAll(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	bad := []string{"a,1e2", "a,100.0", "a, 100", "a,100 ", "a,+100", "a,0100", "a,", "a,9223372036854775808", "a,9007199254740993", "a,-1",
		"a b,1", ",1", "a", "a,1,2"}
	p := b.refused(stock.CodeBadRequest, "14 bad lines, nothing was changed; line 2: available is \"1e2\"", "POST", "/v1/stock/import",
		"good,1\n"+strings.Join(bad, "\n")+"\n")
	if len(p.BadLines) != len(bad) || p.BadLinesTotal != len(bad) {
		t.Fatalf("%d bad lines named of %d, want %d: %+v", len(p.BadLines), p.BadLinesTotal, len(bad), p.BadLines)
	}
	for i, line := range p.BadLines {
		if line.Line != i+2 {
			t.Errorf("bad line %d is said to be line %d", i+2, line.Line)
		}
	}
	p = b.refused(stock.CodeBadRequest, "", "POST", "/v1/stock/import", "a,1\nb,2\na,3\n")
	if fmt.Sprint(p.BadLines) != "[{3 a stands on line 1 already}]" {
		t.Fatalf("%+v", p.BadLines)
	}
	b.refused(stock.CodeBadRequest, `line 2: extraneous`, "POST", "/v1/stock/import", "a,1\n\"b\"x,2\n")
	p = b.refused(stock.CodeBadRequest, "2000 bad lines", "POST", "/v1/stock/import", strings.Repeat("x\n", 2000))
	if len(p.BadLines) != badLinesShown || p.BadLinesTotal != 2000 {
		t.Fatalf("%d of %d", len(p.BadLines), p.BadLinesTotal)
	}
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
}

func TestAnImportIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.ImportLines, cfg.ImportBytes = 2, 20 })
	p := b.refused(stock.CodeBodyTooLarge, "the file has more than 2 lines, limit control.import_lines = 2; nothing was changed", "POST",
		"/v1/stock/import", "a,1\nb,1\nc,1\n")
	if p.Limit != "control.import_lines" || p.Value != "2" {
		t.Errorf("%+v", p)
	}
	p = b.refused(stock.CodeBodyTooLarge, "", "POST", "/v1/stock/import", "a,1\n"+strings.Repeat("b", 20)+",1\n")
	if p.Limit != "control.import_body" || p.Value != "20 bytes" {
		t.Errorf("%+v", p)
	}
	b.refused(stock.CodeUnsupportedEncoded, "", "POST", "/v1/stock/import", "x", "Content-Encoding", "zstd")
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
}

// importer is a store whose imports end so.
type importer struct {
	Records
	err error
}

func (i importer) ImportStock(_ context.Context, _ []stock.Line, _, _, _ string, progress func(int)) ([]stock.Fact, error) {
	progress(1)
	return nil, i.err
}

func TestAnImportThatFailsSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	f := func(err error, code stock.Code, part string) api.Problem {
		t.Helper()
		b := setup(t, func(_ *Config, deps *Deps) { deps.Records = importer{err: err} })
		return b.refused(code, part, "POST", "/v1/stock/import?op=count-1", "a,1\nb,2\n")
	}
	if p := f(stock.ErrUnavailable, stock.CodeUnavailable, "nothing was changed"); p.Op != "count-1" {
		t.Errorf("op %q", p.Op)
	}
	if p := f(stock.ErrUnknown, stock.CodeOutcomeUnknown, "the same op"); p.Op != "count-1" {
		t.Errorf("op %q", p.Op)
	}
	refused := &ledger.ImportError{Total: 7, Refused: []ledger.RefusedRow{{Line: stock.Line{SKU: "b", Qty: 2}, Verdict: stock.VerdictKeyReused}}}
	p := f(errors.Join(refused), stock.CodeBadRequest, "7 bad lines, nothing was changed")
	if p.BadLinesTotal != 7 || len(p.BadLines) != 1 || p.BadLines[0].Line != 2 || !strings.Contains(p.BadLines[0].Problem, "count-1") {
		t.Errorf("%+v", p)
	}
}

func TestAnImportTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const accept = "text/plain;q=0.5, application/x-ndjson"
	got := b.do("POST", "/v1/stock/import", "a,1\nb,2\n", "Accept", accept)
	want := `{"phase":"checked","done":2,"of":2}
{"phase":"written","done":1,"of":2}
{"phase":"written","done":2,"of":2}
{"phase":"committed","done":2,"of":2}
{"imported":{"skus":2}}`
	if got.status != 200 || got.header.Get("Content-Type") != api.ProgressType || got.body != want {
		t.Fatalf("%d %s %s", got.status, got.header, got.body)
	}
	for _, line := range strings.Split(got.body, "\n") {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		if err := describe(t).Components.Schemas["Progress"].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if fmt.Sprint(len(b.published)) != "2" {
		t.Errorf("told of %v", b.published)
	}
	b.refused(stock.CodeBadRequest, "1 bad lines", "POST", "/v1/stock/import", "a,x\n", "Accept", accept)
	b = setup(t, func(_ *Config, deps *Deps) { deps.Records = importer{err: stock.ErrUnknown} })
	got = b.do("POST", "/v1/stock/import?op=i-1", "a,1\n", "Accept", accept)
	if got.status != 200 || !strings.Contains(got.body, "\n{\"problem\":{") || !strings.Contains(got.body, `"op":"i-1"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

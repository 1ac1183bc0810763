package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func TestAnImportSetsEverySKU(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var lines strings.Builder
	lines.WriteString("\ufeffsku,available\r\n")
	const n = 3*importPage + 1
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
	p = b.refused(stock.CodeBadRequest, "500 bad lines", "POST", "/v1/stock/import", strings.Repeat("x\n", 500))
	if len(p.BadLines) != badLinesShown || p.BadLinesTotal != 500 {
		t.Fatalf("%d of %d", len(p.BadLines), p.BadLinesTotal)
	}
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
}

func TestAnImportIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.ImportLines, cfg.ImportBytes = 2, 20 })
	p := b.refused(stock.CodeBodyTooLarge, "", "POST", "/v1/stock/import", "a,1\nb,1\nc,1\n")
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

func TestAnImportThatBreaksOffTellsHowFarItCame(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.breaks(func(op *stock.Op) error {
		if op.SKU == "c" {
			return stock.ErrUnavailable
		}
		return nil
	})
	got := b.do("POST", "/v1/stock/import", "a,1\nb,1\nc,1\nd,1\n")
	var p api.Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil {
		t.Fatal(err)
	}
	if got.status != 503 || p.Applied != 3 || !strings.Contains(p.Detail, "3 of 4 SKUs are set") {
		t.Fatalf("%d %s", got.status, got.body)
	}
}

package control

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

const (
	importedReason = "import"
	toldPage       = 1000 // facts that an import tells at a time
)

// importStock sets many SKUs from CSV lines `sku,available`, with or without that header line, in any case. All lines are checked before
// the first is applied, and all are applied in one transaction, or none. They have one op id, the caller's (?op=) or one that is drawn:
// what was lost is repeated under it, and SKUs that are set already stay as they are. Without it a repeat would put back for sale what
// was sold of them since.
func (s *Server) importStock(r *http.Request) (any, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	id, err := importOpID(r)
	if err != nil {
		return nil, err
	}
	in := stockImport{csvReader: csvReader{linesMax: s.cfg.ImportLines}, lineOf: map[string]int{}}
	if err := in.readAll(r.Body, []string{"sku", "available"}, in.take); err != nil {
		return nil, err
	}
	if err := in.report(); err != nil {
		return nil, err
	}
	all := len(in.rows)
	if all == 0 {
		return nil, refuse(stock.CodeBadRequest, "the import is empty: there is no line sku,available in it")
	}
	steps := stepsOf(r.Context())
	steps.tell(api.ImportChecked, all, all)
	facts, err := s.deps.Records.ImportStock(r.Context(), in.rows, id, actorOf(r.Context()), importedReason,
		func(done int) { steps.tell(api.ImportWritten, done, all) })
	if err != nil {
		return nil, in.refusal(err, id)
	}
	s.tell(facts)
	steps.tell(api.ImportCommitted, all, all)
	return api.Imported{SKUs: all}, nil
}

// tell says what an import has left.
func (s *Server) tell(facts []stock.Fact) {
	if s.deps.Told == nil {
		return
	}
	for page := range slices.Chunk(facts, toldPage) {
		s.deps.Told(page)
	}
}

// importOpID is the caller's op id, else a drawn one.
func importOpID(r *http.Request) (string, error) {
	q, err := queryOf(r, "op")
	if err != nil {
		return "", err
	}
	if !q.Has("op") {
		return "import-" + rand.Text(), nil
	}
	return q.Get("op"), checkOpID(q.Get("op"))
}

// stockImport checks the lines of an import of stock.
type stockImport struct {
	csvReader
	rows   []stock.Line
	lineOf map[string]int // line on which a SKU stands
}

func (in *stockImport) take(line int, record []string) {
	row, err := importRow(record)
	if err != nil {
		in.note(line, err.Error())
		return
	}
	if first, twice := in.lineOf[row.SKU]; twice {
		in.note(line, fmt.Sprintf("%s stands on line %d already", row.SKU, first))
		return
	}
	in.lineOf[row.SKU] = line
	in.rows = append(in.rows, row)
}

// importRow reads one line.
func importRow(record []string) (stock.Line, error) {
	if len(record) != 2 {
		return stock.Line{}, fmt.Errorf("has %d fields, must have 2: sku,available", len(record))
	}
	if err := stock.CheckSKU(record[0]); err != nil {
		return stock.Line{}, err
	}
	n, err := plainNumber("available", record[1], 0)
	return stock.Line{SKU: strings.Clone(record[0]), Qty: n}, err
}

// refusal translates what the store said to an import; id makes a repeat the same import. Rows that the database refuses are bad lines.
func (in *stockImport) refusal(err error, id string) error {
	var rows *ledger.ImportError
	if !errors.As(err, &rows) {
		return repeatable(ofChange(err), id)
	}
	for _, row := range rows.Refused {
		op := stock.Op{Kind: stock.OpSet, SKU: row.SKU, Available: row.Qty, OpID: id, Result: stock.Result{Verdict: row.Verdict}}
		in.note(in.lineOf[row.SKU], ofChange(ofStockVerdict(&op)).Detail)
	}
	in.badTotal = rows.Total
	return in.report()
}

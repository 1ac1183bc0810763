package control

import (
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

const (
	importPage     = 256 // ops handed to the deducter at a time: what it commits in one transaction
	badLinesShown  = 100 // of all bad lines, those that the answer names
	byteOrderMark  = "\ufeff"
	importedReason = "import"
)

// importStock sets many SKUs from CSV lines `sku,available`, with or without that header line, in any case. All lines are checked before
// the first is applied. They are then applied in pages. All lines have one op id, the caller's (?op=) or one that is drawn: what breaks off
// in between is repeated as a whole under it, and SKUs that are set already stay as they are. Without it a repeat would put back for
// sale what was sold of them since.
func (s *Server) importStock(r *http.Request) (any, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	id, err := importOpID(r)
	if err != nil {
		return nil, err
	}
	ops, err := s.readImport(r, id)
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, refuse(stock.CodeBadRequest, "the import is empty: there is no line sku,available in it")
	}
	for done := 0; done < len(ops); done += importPage {
		page := ops[done:min(done+importPage, len(ops))]
		if applied, err := s.applyPage(r.Context(), page); err != nil {
			return nil, brokeOff(err, id, done+applied, len(ops))
		}
	}
	return api.Imported{SKUs: len(ops)}, nil
}

// applyPage runs the ops of a page together, so that the deducter commits them together, and says how many of them surely are.
func (s *Server) applyPage(ctx context.Context, page []*stock.Op) (applied int, err error) {
	done := make([]bool, len(page))
	var group errgroup.Group
	for i, op := range page {
		group.Go(func() error {
			if err := s.run(ctx, op); err != nil {
				return err
			}
			if err := ofStockVerdict(op); err != nil {
				return err
			}
			done[i] = true
			return nil
		})
	}
	err = group.Wait()
	for _, ok := range done {
		if ok {
			applied++
		}
	}
	return applied, err
}

// importOpID is the caller's op id, else a drawn one.
func importOpID(r *http.Request) (string, error) {
	ids, given := r.URL.Query()["op"]
	switch {
	case !given:
		return "import-" + rand.Text(), nil
	case len(ids) > 1:
		return "", badField("op", "there twice", "allowed is once")
	}
	return ids[0], checkOpID(ids[0])
}

// brokeOff tells how far an import came and how to go on. problem is the first of what went wrong.
func brokeOff(err error, id string, applied, all int) error {
	problem := ofChange(err)
	problem.Applied, problem.Op = applied, id
	problem.Detail = fmt.Sprintf("%d of %d SKUs are set, then: %s. Import the same file again with op %s: what is set already stays as it is",
		applied, all, problem.Detail, id)
	return problem
}

// importReader checks the lines of an import.
type importReader struct {
	csv      *csv.Reader
	linesMax int
	lines    int
	firstOf  map[string]int // line on which a SKU stands
	bad      []api.BadLine
	badTotal int
	ops      []*stock.Op
}

func (s *Server) readImport(r *http.Request, id string) ([]*stock.Op, error) {
	in := importReader{csv: csv.NewReader(r.Body), linesMax: s.cfg.ImportLines, firstOf: map[string]int{}}
	in.csv.FieldsPerRecord = -1 // counted here, so that all bad lines are reported and not only the first
	in.csv.ReuseRecord = true
	if err := in.readAll(); err != nil {
		return nil, err
	}
	if in.badTotal > 0 {
		return nil, in.report()
	}
	actor := actorOf(r.Context())
	for _, op := range in.ops {
		op.Actor, op.OpID = actor, id
	}
	return in.ops, nil
}

func (in *importReader) readAll() error {
	for {
		record, err := in.csv.Read()
		var syntax *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &syntax):
			in.note(syntax.Line, syntax.Err.Error())
			return nil // after a broken quote it is not known where the next line begins
		case err != nil:
			return ofBody(err, "control.import_body")
		}
		line, _ := in.csv.FieldPos(0)
		if in.lines++; in.lines > in.linesMax {
			return overLimit(stock.CodeBodyTooLarge, "control.import_lines", strconv.Itoa(in.linesMax))
		}
		in.take(line, record)
	}
}

func (in *importReader) take(line int, record []string) {
	if in.lines == 1 {
		record[0] = strings.TrimPrefix(record[0], byteOrderMark)
		if len(record) == 2 && strings.EqualFold(record[0], "sku") && strings.EqualFold(record[1], "available") {
			return
		}
	}
	op, err := importOp(record)
	if err != nil {
		in.note(line, err.Error())
		return
	}
	if first, twice := in.firstOf[op.SKU]; twice {
		in.note(line, fmt.Sprintf("%s stands on line %d already", op.SKU, first))
		return
	}
	in.firstOf[op.SKU] = line
	in.ops = append(in.ops, op)
}

// importOp reads one line. The number is digits and nothing else: what a spreadsheet makes of it (1e2, 100.0, 1,000, spaces, +100,
// 0100) is refused, never guessed at (C006).
func importOp(record []string) (*stock.Op, error) {
	if len(record) != 2 {
		return nil, fmt.Errorf("has %d fields, must have 2: sku,available", len(record))
	}
	if err := stock.CheckSKU(record[0]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(record[1], 10, 64)
	if err != nil || n < 0 || n > stock.MaxQuantity || record[1] != strconv.FormatInt(n, 10) {
		return nil, fmt.Errorf("available is %s, must be a whole number from 0 to %d in plain digits", shorten(record[1]), stock.MaxQuantity)
	}
	return &stock.Op{Kind: stock.OpSet, SKU: strings.Clone(record[0]), Available: n, Reason: importedReason}, nil
}

func (in *importReader) note(line int, problem string) {
	in.badTotal++
	if len(in.bad) < badLinesShown {
		in.bad = append(in.bad, api.BadLine{Line: line, Problem: problem})
	}
}

func (in *importReader) report() error {
	p := refuse(stock.CodeBadRequest, "%d bad lines, nothing was changed; line %d: %s", in.badTotal, in.bad[0].Line, in.bad[0].Problem)
	p.BadLines, p.BadLinesTotal = in.bad, in.badTotal
	return p
}

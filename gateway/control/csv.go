package control

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

const (
	badLinesShown = 1000 // of all bad lines, those that the answer names
	byteOrderMark = "\ufeff"
)

// csvReader reads the lines of an import and gathers what is wrong with them, so that one answer names all that there is to mend.
type csvReader struct {
	linesMax int
	lines    int
	bad      []api.BadLine
	badTotal int
}

// readAll hands every line to take, but a first one that names the columns. A record is valid until take returns. Lines that take cannot
// use it notes with note.
func (in *csvReader) readAll(body io.Reader, columns []string, take func(line int, record []string)) error {
	r := csv.NewReader(withoutMark(body))
	r.FieldsPerRecord = -1 // counted by take, so that all bad lines are reported and not only the first
	r.ReuseRecord = true
	for first := true; ; first = false {
		record, err := r.Read()
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
		if first && heads(record, columns) {
			continue
		}
		if in.lines++; in.lines > in.linesMax {
			return in.tooMany()
		}
		line, _ := r.FieldPos(0)
		take(line, record)
	}
}

func (in *csvReader) tooMany() error {
	p := overLimit(stock.CodeBodyTooLarge, "control.import_lines", strconv.Itoa(in.linesMax))
	p.Detail = fmt.Sprintf("the file has more than %d lines, %s; nothing was changed: import it in parts", in.linesMax, p.Detail)
	return p
}

// withoutMark drops a byte order mark. It stands before the first quote of a file that quotes its fields, where the CSV reader would take
// it for a field without quotes.
func withoutMark(body io.Reader) *bufio.Reader {
	r := bufio.NewReader(body)
	if mark, _ := r.Peek(len(byteOrderMark)); string(mark) == byteOrderMark { // an error comes again with the next read
		_, _ = r.Discard(len(mark))
	}
	return r
}

// heads reports whether a line names columns, in any case; the last ones may be left out if they are optional, and that the line does.
func heads(record, columns []string) bool {
	return len(record) > 1 && len(record) <= len(columns) && slices.EqualFunc(record, columns[:len(record)], strings.EqualFold)
}

func (in *csvReader) note(line int, problem string) {
	in.badTotal++
	if len(in.bad) < badLinesShown {
		in.bad = append(in.bad, api.BadLine{Line: line, Problem: problem})
	}
}

// report is the refusal of an import with bad lines, nil if there are none.
func (in *csvReader) report() error {
	if in.badTotal == 0 {
		return nil
	}
	slices.SortStableFunc(in.bad, func(a, b api.BadLine) int { return a.Line - b.Line })
	p := refuse(stock.CodeBadRequest, "%d bad lines, nothing was changed; line %d: %s", in.badTotal, in.bad[0].Line, in.bad[0].Problem)
	p.BadLines, p.BadLinesTotal = in.bad, in.badTotal
	return p
}

// plainNumber reads a number of digits and nothing else: what a spreadsheet makes of it (1e2, 100.0, 1,000, spaces, +100, 0100) is
// refused, never guessed at (C006).
func plainNumber(name, text string, least int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > stock.MaxQuantity || text != strconv.FormatInt(n, 10) {
		return 0, fmt.Errorf("%s is %s, must be a whole number from %d to %d in plain digits", name, shorten(text), least, stock.MaxQuantity)
	}
	return n, nil
}

package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	// ImportMax is the most SKUs of one import: all of them are locked at once.
	ImportMax = 1_000_000
	// importPage is how many SKUs one statement of an import is about.
	importPage = 2000
	// importPatience bounds an import whose caller's ctx has no earlier deadline, and importStatement one statement of it.
	importPatience  = 5 * time.Minute
	importStatement = 30 * time.Second
	// importRefusedMax is how many refused rows an ImportError names.
	importRefusedMax = 100
)

// ImportError says which rows of an import cannot be written. Nothing of the import was done (stock.ErrNotExecuted).
type ImportError struct {
	Refused []RefusedRow // the first hundred, by SKU bytes
	Total   int          // how many there are
}

// RefusedRow is a row of an import that the database refused: VerdictUnknownSKU (a table of the shop does not have it),
// VerdictCorrupt (its stock row holds no integer), VerdictShort (less than what is granted of it) or VerdictKeyReused (the op id has
// set it to another number).
type RefusedRow struct {
	stock.Line
	Verdict stock.Verdict
}

func (e *ImportError) Error() string {
	first := e.Refused[0]
	return fmt.Sprintf("import: %d SKUs were refused, nothing was written; the first is %s: %s", e.Total, first.SKU, first.Verdict)
}

// Is makes every ImportError an ErrNotExecuted.
func (e *ImportError) Is(target error) bool { return target == stock.ErrNotExecuted }

// ImportStock makes the unsold total of every row's SKU its Qty (0 … MaxQuantity), all of them or none, in one transaction. It decides
// as OpSet does: what is granted stays in the total, SKUs that are new are made if the stock table is stockgate's own, every SKU gets
// a ledger row with opID, actor and reason. opID is needed; a repeat under it changes nothing, SKU by SKU, so repeat the same call
// after stock.ErrUnknown. rows are in any order, each SKU once, at most ImportMax; they are left alone.
//
// It gives the SKUs' facts, one each, for Redis: nobody else tells them as soon. progress, if not nil, is told how many SKUs are
// written, from this goroutine; what is written is not committed before the call returns.
//
// Meanwhile the stock rows of all its SKUs are locked: settles, releases and stock changes of these SKUs wait, and are refused
// (QUEUE_TIMEOUT) or come back when the import lasts longer than they may. Other SKUs go on. SQLite has one writer: everything that
// writes waits, heartbeats and leases too. It waits at most LockTimeout for each lock that others have, and then fails as a whole:
// Retryable. ctx bounds it, and five minutes do, not StatementTimeout.
func (s *Store) ImportStock(ctx context.Context, rows []stock.Line, opID, actor, reason string, progress func(done int)) ([]stock.Fact, error) {
	rows, err := importable(rows, stock.Op{Kind: stock.OpSet, OpID: opID, Actor: actor, Reason: reason})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if progress == nil {
		progress = func(int) {}
	}
	ctx, cancel := context.WithTimeout(ctx, importPatience)
	defer cancel()
	c, err := s.d.acquire(ctx, true)
	if err != nil {
		return nil, s.executing(err)
	}
	defer c.release()
	i := &stockImport{s: s, c: c, bulk: s.d.session(c).(bulk), rows: rows, progress: progress, stocks: make(map[string]stockRow, len(rows)),
		op: stock.Op{Kind: stock.OpSet, OpID: opID, Actor: actor, Reason: reason}}
	if err := i.run(); err != nil {
		c.rollback()
		return nil, s.executing(err)
	}
	if err := s.commit(c); err != nil {
		return nil, err
	}
	return i.facts, nil
}

// importable checks rows and sorts a copy in the order of locks.
func importable(rows []stock.Line, op stock.Op) ([]stock.Line, error) {
	if op.OpID == "" {
		return nil, badMember("import: an op id is needed: without one a repeat would put back for sale what was sold since")
	}
	if len(rows) > ImportMax {
		return nil, badMember("import: %d SKUs, at most %d are allowed", len(rows), ImportMax)
	}
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b stock.Line) int { return strings.Compare(a.SKU, b.SKU) })
	for i, r := range rows {
		op.SKU, op.Available = r.SKU, r.Qty
		if err := checkOp(&op); err != nil {
			return nil, err
		}
		if i > 0 && rows[i-1].SKU == r.SKU {
			return nil, badMember("import: %s is there twice", r.SKU)
		}
	}
	return rows, nil
}

// bulk is a session that locks more than one batch does, page by page. Its calls come in the order of locks: beginBulk, all createPage,
// all lockPage, then read and writePage by turns.
type bulk interface {
	session
	// beginBulk begins the transaction. Each statement may take as long as it is given.
	beginBulk(statement time.Duration) error
	// createPage makes stock rows for those of skus that have none.
	createPage(skus []string) error
	// lockPage locks the stock rows of skus, by SKU bytes, and adds them to stocks.
	lockPage(skus []string, stocks map[string]stockRow) error
	// writePage is write for a page of SKUs without reservations.
	writePage(h *held) error
	// renewPage makes now the time at which skus were changed last.
	renewPage(skus []string) error
	// hurry ends the patience with statements: COMMIT has to come through as fast as any other.
	hurry()
}

// stockImport is one ImportStock under way.
type stockImport struct {
	s        *Store
	c        *conn
	bulk     bulk
	rows     []stock.Line // by SKU bytes
	op       stock.Op     // what the ops of all rows have in common
	progress func(int)

	stocks  map[string]stockRow
	wrote   time.Time // when the first page was written, by our own clock; zero: none yet
	facts   []stock.Fact
	refused ImportError
}

// run does everything but COMMIT.
func (i *stockImport) run() error {
	if err := i.bulk.beginBulk(importStatement); err != nil {
		return err
	}
	if err := i.lock(); err != nil {
		return err
	}
	done := 0
	for page := range slices.Chunk(i.rows, importPage) {
		if err := i.page(page); err != nil {
			return err
		}
		done += len(page)
		i.progress(done)
	}
	if i.refused.Total > 0 {
		return notExecuted(&i.refused)
	}
	if err := i.renew(); err != nil {
		return err
	}
	i.bulk.hurry()
	return nil
}

// lock makes all stock rows before it locks any, like every transaction.
func (i *stockImport) lock() error {
	if i.s.own {
		for page := range slices.Chunk(i.rows, importPage) {
			if err := i.bulk.createPage(skusOf(page)); err != nil {
				return err
			}
		}
	}
	for page := range slices.Chunk(i.rows, importPage) {
		if err := i.bulk.lockPage(skusOf(page), i.stocks); err != nil {
			return err
		}
	}
	return nil
}

// page decides about a page of SKUs as a transaction of ops does, and writes it, unless something was refused.
func (i *stockImport) page(rows []stock.Line) error {
	h, err := i.read(skusOf(rows))
	if err != nil {
		return err
	}
	op := i.op
	for _, r := range rows {
		op.SKU, op.Available = r.SKU, r.Qty
		if v := h.decide(&op).Verdict; v != stock.VerdictDone {
			i.refuse(r, v)
		}
	}
	if i.refused.Total > 0 {
		return nil
	}
	i.facts = append(i.facts, h.facts(skusOf(rows))...)
	if !h.changed() {
		return nil
	}
	if i.wrote.IsZero() {
		i.wrote = time.Now()
	}
	return i.bulk.writePage(h)
}

// read locks and reads what deciding about skus needs.
func (i *stockImport) read(skus []string) (*held, error) {
	h := &held{forwardWithin: i.s.cfg.ForwardWithin, skus: make(map[string]*skuState, len(skus)), rows: map[stock.ID]*rowState{},
		ops: map[opKey]doneOp{}, partitions: map[int]*partition{}}
	for _, sku := range skus {
		if row, ok := i.stocks[sku]; ok {
			h.skus[sku] = &skuState{sku: sku, present: true, whole: row.whole, available: row.available}
		}
	}
	err := i.bulk.read(readRequest{skus: skus, partitions: partitionsOf(skus, i.s.cfg.Partitions)}, h)
	if err != nil {
		return nil, err
	}
	for _, sku := range skus {
		if k := h.skus[sku]; k != nil {
			k.partition = h.partitionOf(sku, i.s.cfg.Partitions)
			h.noticeExternal(k)
		}
	}
	query := i.s.d.expand(`SELECT sku, kind, op, delta, "after" FROM {ledger}
		WHERE reservation_id = {id $1} AND try = 0 AND sku {in $2} AND kind = $3 AND op = $4`)
	args := []any{stock.ID{}.String(), i.s.d.list(skus), string(stock.KindSet), i.op.OpID}
	return h, i.c.rows(query, args, scanOpKey(h))
}

func (i *stockImport) refuse(r stock.Line, v stock.Verdict) {
	if i.refused.Total++; len(i.refused.Refused) < importRefusedMax {
		i.refused.Refused = append(i.refused.Refused, RefusedRow{Line: r, Verdict: v})
	}
}

// renew makes the times of change young again. Whoever follows FactsChangedSince looks back by as long as a transaction may take, so
// what was written longer before COMMIT would never be seen by it.
func (i *stockImport) renew() error {
	young := i.s.overlap() - i.s.cfg.StatementTimeout - wireGrace // COMMIT takes the rest
	if i.wrote.IsZero() || time.Since(i.wrote) < young {
		return nil
	}
	start := time.Now()
	for page := range slices.Chunk(i.rows, importPage) {
		if err := i.bulk.renewPage(skusOf(page)); err != nil {
			return err
		}
		if time.Since(start) > young {
			return notExecuted(fmt.Errorf("import: the database takes longer than %s to note the time of %d SKUs: import fewer at a time",
				young, len(i.rows)))
		}
	}
	return nil
}

func skusOf(rows []stock.Line) []string {
	skus := make([]string, len(rows))
	for i, r := range rows {
		skus[i] = r.SKU
	}
	return skus
}

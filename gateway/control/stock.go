package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

const (
	reasonBytesMax   = 255 // of a reason that is kept in the ledger
	opBytesMax       = 128 // of a caller's op id
	afterBytesMax    = 1024
	orderRefBytesMax = 255
	listLimitDefault = 100
	listLimitMax     = 1000
	linesMax         = 100 // of a release or a direct reservation
	userBytesMax     = 255
	activityBytesMax = 255
	requestBytesMax  = 255
)

// getStock answers what is known of one SKU.
func (s *Server) getStock(r *http.Request) (any, error) {
	sku, err := pathSKU(r)
	if err != nil {
		return nil, err
	}
	found, known, err := s.deps.Store.Stock(r.Context(), sku)
	switch {
	case err != nil:
		return nil, ofRead(err)
	case !known:
		return nil, unknownSKU(sku)
	}
	views := []api.SKU{viewSKU(found)}
	s.addRegisters(r.Context(), views)
	return views[0], nil
}

// listStock answers a page of SKUs.
func (s *Server) listStock(r *http.Request) (any, error) {
	after, limit, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	found, err := s.deps.Store.ListStock(r.Context(), after, limit)
	if err != nil {
		return nil, ofRead(err)
	}
	list := api.SKUList{SKUs: make([]api.SKU, len(found))}
	for i, sku := range found {
		list.SKUs[i] = viewSKU(sku)
	}
	if len(found) == limit {
		list.Next = found[limit-1].SKU
	}
	s.addRegisters(r.Context(), list.SKUs)
	return list, nil
}

// setStock makes a SKU's unsold total what the caller says.
func (s *Server) setStock(r *http.Request) (any, error) {
	body, err := readObject(r, "available", "op", "reason")
	if err != nil {
		return nil, err
	}
	op := &stock.Op{Kind: stock.OpSet}
	if op.Available, err = body.integer("available", 0, stock.MaxQuantity); err != nil {
		return nil, err
	}
	if op.OpID, err = opIDOf(body); err != nil {
		return nil, err
	}
	return s.changeStock(r, op, body)
}

// adjustStock adds to a SKU's available, once per op id.
func (s *Server) adjustStock(r *http.Request) (any, error) {
	body, err := readObject(r, "delta", "op", "reason")
	if err != nil {
		return nil, err
	}
	op := &stock.Op{Kind: stock.OpAdjust}
	if op.Delta, err = body.integer("delta", -stock.MaxQuantity, stock.MaxQuantity); err != nil {
		return nil, err
	}
	if op.Delta == 0 {
		return nil, badField("delta", "0", "must not be 0")
	}
	if op.OpID, err = opIDOf(body); err != nil {
		return nil, err
	}
	if op.OpID == "" {
		return nil, badOpID(op.OpID)
	}
	return s.changeStock(r, op, body)
}

// opIDOf is the caller's id of a change, "" if the field is absent.
func opIDOf(body object) (string, error) {
	if _, present := body["op"]; !present {
		return "", nil
	}
	id, err := body.text("op", opBytesMax)
	if err != nil {
		return "", err
	}
	return id, checkOpID(id)
}

func checkOpID(id string) error {
	if len(id) > opBytesMax || !visibleASCII(id) || id[0] == '#' { // ops that begin with # are those that the ledger makes up
		return badOpID(id)
	}
	return nil
}

func badOpID(id string) error {
	return badField("op", shorten(id), "must be 1 to "+strconv.Itoa(opBytesMax)+
		" visible ASCII bytes, the first not #: your id of this change, so that a repeat changes nothing")
}

// drawOpID names a change whose caller did not: a refusal tells the id, so that the change can be repeated safely all the same.
func drawOpID(op *stock.Op) {
	if op.OpID == "" && op.Kind == stock.OpSet {
		op.OpID = "set-" + rand.Text()
	}
}

// repeatable adds the op id to a refusal after which the same call may be made again.
func repeatable(err error, op string) error {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Status >= http.StatusInternalServerError {
		problem.Op = op
	}
	return err
}

// noteStock serves the changes that carry nothing but a reason.
func (s *Server) noteStock(kind stock.OpKind) endpoint {
	return func(r *http.Request) (any, error) {
		body, err := readObject(r, "reason")
		if err != nil {
			return nil, err
		}
		return s.changeStock(r, &stock.Op{Kind: kind}, body)
	}
}

// changeStock completes a stock op, runs it and answers what it left.
func (s *Server) changeStock(r *http.Request, op *stock.Op, body object) (any, error) {
	var err error
	if op.SKU, err = pathSKU(r); err != nil {
		return nil, err
	}
	if op.Reason, err = body.text("reason", reasonBytesMax); err != nil {
		return nil, err
	}
	op.Actor = actorOf(r.Context())
	named := op.OpID
	drawOpID(op)
	id := op.OpID
	if err := s.run(r.Context(), op); err != nil {
		return nil, repeatable(err, id)
	}
	if s.overflows(r.Context(), op) {
		return nil, badField("delta", strconv.FormatInt(op.Delta, 10), fmt.Sprintf("%s would have more than %d units; nothing was changed",
			op.SKU, stock.MaxQuantity))
	}
	if err := ofStockVerdict(op); err != nil {
		return nil, repeatable(err, id)
	}
	fact, err := s.factAfter(r.Context(), op)
	if err != nil {
		return nil, repeatable(err, id)
	}
	return api.Change{Fact: fact, Op: named}, nil
}

// run gives op to the deducter and, once it is committed, tells of it. After an error op must not be looked at: it may
// still belong to the deducter.
func (s *Server) run(ctx context.Context, op *stock.Op) error {
	op.Class = stock.ClassPrededuct // limited like all that is not forwarded yet, and refused at once while the database is away
	if deadline, ok := ctx.Deadline(); ok {
		op.Deadline = deadline
	}
	if err := s.deps.Deducter.Do(ctx, op); err != nil {
		return ofChange(err)
	}
	if s.deps.Committed != nil {
		s.deps.Committed(op)
	}
	return nil
}

// factAfter is what op's transaction left of its SKU. A repeat that found its op done may have locked nothing; then it is read.
func (s *Server) factAfter(ctx context.Context, op *stock.Op) (api.Fact, error) {
	for _, f := range op.Result.Facts {
		if f.SKU == op.SKU {
			return viewFact(f), nil
		}
	}
	found, known, err := s.deps.Store.Stock(ctx, op.SKU)
	switch {
	case err != nil:
		return api.Fact{}, refuse(stock.CodeOutcomeUnknown, "it is done, but the database cannot be read for the answer: %v", err)
	case !known:
		return api.Fact{}, unknownSKU(op.SKU)
	}
	return viewFact(found.Fact), nil
}

// overflows reports whether an adjustment was refused because of what it asked for, and not because of what the stock row holds.
func (s *Server) overflows(ctx context.Context, op *stock.Op) bool {
	if op.Kind != stock.OpAdjust || op.Result.Verdict != stock.VerdictCorrupt || op.Delta <= 0 {
		return false
	}
	found, known, err := s.deps.Store.Stock(ctx, op.SKU)
	return err == nil && known && !found.Corrupt && found.Available > stock.MaxQuantity-op.Delta
}

// ofStockVerdict translates what the database decided about a stock op.
func ofStockVerdict(op *stock.Op) error {
	switch v := op.Result.Verdict; v {
	case stock.VerdictDone:
		return nil
	case stock.VerdictUnknownSKU:
		if op.Kind == stock.OpSet {
			return refuse(stock.CodeUnknownSKU, "the stock table is the shop's own and has no %s; stockgate makes no rows there", op.SKU)
		}
		return unknownSKU(op.SKU)
	case stock.VerdictShort, stock.VerdictSoldOut:
		return refuse(stock.CodeSoldOut, "%s; nothing was changed", tooFew(op))
	case stock.VerdictKeyReused:
		return refuse(stock.CodeKeyReused, "op %s was used for another change of %s", shorten(op.OpID), op.SKU)
	case stock.VerdictCorrupt:
		return refuse(stock.CodeCorruptStock, "the stock row of %s would hold or holds what cannot be sold from: allowed are 0 to %d; "+
			"nothing was changed", op.SKU, stock.MaxQuantity)
	default:
		return refuse(stock.CodeInternal, "verdict %s on a stock op", v)
	}
}

// tooFew says what a change would have taken away that is not there.
func tooFew(op *stock.Op) string {
	if op.Kind == stock.OpSet {
		return fmt.Sprintf("more than %d units of %s are granted to Redis", op.Available, op.SKU)
	}
	return fmt.Sprintf("%s has less than %d units available", op.SKU, -op.Delta)
}

func unknownSKU(sku string) *api.Problem {
	return refuse(stock.CodeUnknownSKU, "the stock table has no %s", sku)
}

// pathSKU is the SKU that the path names, percent-decoded, then checked.
func pathSKU(r *http.Request) (string, error) {
	sku := r.PathValue("sku")
	if err := stock.CheckSKU(sku); err != nil {
		p := refuse(stock.CodeBadRequest, "%v", err)
		p.Field = "sku"
		return "", p
	}
	return sku, nil
}

// pageOf reads the query of a list of SKUs.
func pageOf(r *http.Request) (after string, limit int, err error) {
	q, err := queryOf(r, "after", "limit")
	if err != nil {
		return "", 0, err
	}
	after = q.Get("after")
	// A shop's own table may hold names that are no SKUs of ours: a page can end with one.
	if len(after) > afterBytesMax || !utf8.ValidString(after) || strings.ContainsRune(after, 0) {
		return "", 0, badField("after", shorten(after), "must be the next of the page before: at most "+strconv.Itoa(afterBytesMax)+" bytes of UTF-8")
	}
	limit, err = q.limit()
	return after, limit, err
}

// addRegisters adds to skus what Redis holds of them. It is an extra: without Redis, or with one that does not answer at once, the
// database's figures go out alone.
func (s *Server) addRegisters(ctx context.Context, skus []api.SKU) {
	if s.deps.Cache == nil || len(skus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	place := make(map[string]int, len(skus))
	names := make([]string, len(skus))
	for i, sku := range skus {
		place[sku.SKU], names[i] = i, sku.SKU
	}
	found, err := s.deps.Cache.Registers(ctx, names)
	if err != nil {
		return
	}
	for _, regs := range found {
		if i, asked := place[regs.SKU]; asked {
			skus[i].Redis = viewRegisters(regs)
		}
	}
}

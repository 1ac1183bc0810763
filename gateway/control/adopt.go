package control

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

const (
	adoptPage  = 256 // orders handed to the deducter at a time: what it commits in one transaction
	skusAtOnce = 8   // look-ups of SKUs at a time
)

var orderColumns = []string{"order_ref", "sku", "qty", "user", "state", "hold"}

// importReservations makes reservations of the open orders that a shop has when stockgate comes, from CSV lines
// `order_ref,sku,qty,user,state[,hold]`. Their units have left the stock row already, so available does not move. Lines of one order are
// one reservation; its id follows from user and order, so that the same file again changes nothing. What the file says and what stands
// here agree afterwards, or the line is named. All lines are checked before the first is applied. They count in no purchase limit.
func (s *Server) importReservations(r *http.Request) (any, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if _, err := queryOf(r); err != nil {
		return nil, err
	}
	in := orderImport{csvReader: csvReader{linesMax: s.cfg.ImportLines}, byRef: map[string]*openOrder{}}
	if err := in.readAll(r.Body, orderColumns, in.take); err != nil {
		return nil, err
	}
	if len(in.orders) == 0 && in.badTotal == 0 {
		return nil, refuse(stock.CodeBadRequest, "the import is empty: there is no line %s in it", strings.Join(orderColumns, ","))
	}
	if err := s.checkOrders(r.Context(), &in); err != nil {
		return nil, err
	}
	return s.adopt(r.Context(), &in)
}

// openOrder is the lines of one order.
type openOrder struct {
	ref, user string
	paid      bool
	hold      time.Duration // 0: the rules'
	line      int           // of the file, its first
	lines     []stock.Line
}

// orderImport checks the lines of an import of open orders.
type orderImport struct {
	csvReader
	orders []*openOrder
	byRef  map[string]*openOrder
}

func (in *orderImport) take(line int, record []string) {
	o, err := readOrder(record)
	if err != nil {
		in.note(line, err.Error())
		return
	}
	o.line = line
	first := in.byRef[o.ref]
	if first == nil {
		in.byRef[o.ref] = o
		in.orders = append(in.orders, o)
		return
	}
	if first.user != o.user || first.paid != o.paid || first.hold != o.hold {
		in.note(line, fmt.Sprintf("order %s has another user, state or hold on line %d", shorten(o.ref), first.line))
		return
	}
	first.lines = append(first.lines, o.lines...)
}

// readOrder reads one line.
func readOrder(record []string) (*openOrder, error) {
	if n := len(record); n != len(orderColumns) && n != len(orderColumns)-1 {
		return nil, fmt.Errorf("has %d fields, must have 5 or 6: %s", n, strings.Join(orderColumns, ","))
	}
	o := &openOrder{ref: strings.Clone(record[0]), user: strings.Clone(record[3])}
	if err := orderText("order_ref", o.ref, orderRefBytesMax); err != nil || o.ref == "" {
		return nil, cmp.Or(err, fmt.Errorf("order_ref is empty"))
	}
	if err := orderText("user", o.user, userBytesMax); err != nil {
		return nil, err
	}
	if err := stock.CheckSKU(record[1]); err != nil {
		return nil, err
	}
	qty, err := plainNumber("qty", record[2], 1)
	if err != nil {
		return nil, err
	}
	o.lines = []stock.Line{{SKU: strings.Clone(record[1]), Qty: qty}}
	return o, o.readEnd(record[4:])
}

// readEnd reads state and hold.
func (o *openOrder) readEnd(fields []string) (err error) {
	switch fields[0] {
	case stock.StateHeld.String():
	case stock.StateConfirmed.String():
		o.paid = true
	default:
		return fmt.Errorf("state is %s, must be held or confirmed", shorten(fields[0]))
	}
	if len(fields) == 1 || fields[1] == "" {
		return nil
	}
	if o.hold, err = time.ParseDuration(fields[1]); err != nil || o.hold < time.Second {
		return fmt.Errorf("hold is %s, must be a length of time of at least 1s, such as 25m or 1h30m", shorten(fields[1]))
	}
	return nil
}

func orderText(name, text string, most int) error {
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%s is %s, must be at most %d bytes of UTF-8 without control characters", name, shorten(text), most)
	}
	return nil
}

// checkOrders completes the orders and checks what a single line does not show: sums, holds, whether the SKUs exist, and whether the
// orders have reservations already.
func (s *Server) checkOrders(ctx context.Context, in *orderImport) error {
	missing, err := s.missingSKUs(ctx, in.orders)
	if err != nil {
		return err
	}
	holders, err := s.holdersOf(ctx, in.orders)
	if err != nil {
		return err
	}
	for _, o := range in.orders {
		if err := cmp.Or(s.checkHolders(o, holders[o.ref]), s.checkOrder(o, missing)); err != nil {
			in.note(o.line, fmt.Sprintf("order %s: %v", shorten(o.ref), err))
		}
	}
	return in.report()
}

// holdersOf is the reservations that hold units for orders, by order reference.
func (s *Server) holdersOf(ctx context.Context, orders []*openOrder) (map[string][]stock.ID, error) {
	refs := make([]string, len(orders))
	for i, o := range orders {
		refs[i] = o.ref
	}
	holders, err := s.deps.Records.OrderRefs(ctx, refs)
	if err != nil {
		return nil, ofRead(err)
	}
	return holders, nil
}

// checkHolders: an order that another reservation is held or paid for, one of the gateway say, would bring its units a second time.
func (s *Server) checkHolders(o *openOrder, holders []stock.ID) error {
	own := s.idOf(o)
	for _, id := range holders {
		if id != own {
			return fmt.Errorf("has reservation %s already", id)
		}
	}
	return nil
}

// idOf is the id of the reservation that o becomes.
func (s *Server) idOf(o *openOrder) stock.ID {
	return stock.DeriveID(s.deps.Deployment(), stock.RouteImport, "", o.user, o.ref)
}

func (s *Server) checkOrder(o *openOrder, missing map[string]bool) error {
	merged, err := stock.MergeLines(o.lines)
	if err != nil {
		return err
	}
	o.lines = merged
	shortest := time.Duration(0)
	for _, l := range merged {
		if missing[l.SKU] {
			return fmt.Errorf("the stock table has no %s", l.SKU)
		}
		if longest, key := s.deps.Sale.HoldMax("", l.SKU); o.hold > longest {
			return fmt.Errorf("hold is %s, limit %s = %s", o.hold, key, longest)
		}
		if hold := s.deps.Sale.Hold(l.SKU); shortest == 0 || hold < shortest {
			shortest = hold
		}
	}
	o.hold = cmp.Or(o.hold, shortest)
	return nil
}

// missingSKUs is the SKUs of orders that the stock table does not have.
func (s *Server) missingSKUs(ctx context.Context, orders []*openOrder) (map[string]bool, error) {
	known := map[string]bool{}
	for _, o := range orders {
		for _, l := range o.lines {
			known[l.SKU] = false
		}
	}
	skus := make([]string, 0, len(known))
	for sku := range known {
		skus = append(skus, sku)
	}
	found := make([]bool, len(skus))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(skusAtOnce)
	for i, sku := range skus {
		group.Go(func() (err error) {
			_, found[i], err = s.deps.Store.Stock(ctx, sku)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, ofRead(err)
	}
	missing := map[string]bool{}
	for i, sku := range skus {
		if !found[i] {
			missing[sku] = true
		}
	}
	return missing, nil
}

// adopt writes the orders in pages. An order that the database refuses does not hold up the others.
func (s *Server) adopt(ctx context.Context, in *orderImport) (any, error) {
	steps, all := stepsOf(ctx), len(in.orders)
	steps.tell(api.ImportChecked, all, all)
	sum := api.ImportedReservations{}
	for page := range slices.Chunk(in.orders, adoptPage) {
		if err := s.adoptPage(ctx, page, in, &sum); err != nil {
			problem := ofChange(err)
			problem.Applied = sum.Reservations
			problem.Detail = fmt.Sprintf("%d of %d orders are imported, then: %s. Import the same file again: what is imported already stays as it is",
				sum.Reservations, all, problem.Detail)
			return nil, problem
		}
		steps.tell(api.ImportCommitted, sum.Reservations, all)
	}
	if in.badTotal == 0 {
		return sum, nil
	}
	problem := refuse(stock.CodeKeyReused, "%d of %d orders are imported, %d are refused", sum.Reservations, all, in.badTotal)
	problem.Applied, problem.BadLines, problem.BadLinesTotal = sum.Reservations, in.bad, in.badTotal
	return nil, problem
}

// adoptPage runs the ops of a page together, so that the deducter commits them together, and adds up what came of them.
func (s *Server) adoptPage(ctx context.Context, page []*openOrder, in *orderImport, sum *api.ImportedReservations) error {
	why, committed := make([]string, len(page)), make([]bool, len(page))
	var group errgroup.Group
	for i, o := range page {
		group.Go(func() (err error) {
			why[i], err = s.adoptOrder(ctx, o)
			committed[i] = err == nil
			return err
		})
	}
	err := group.Wait()
	for i, o := range page {
		switch {
		case !committed[i]:
		case why[i] != "":
			in.note(o.line, fmt.Sprintf("order %s: %s", shorten(o.ref), why[i]))
		default:
			sum.Reservations++
			if o.paid {
				sum.Confirmed++
			} else {
				sum.Held++
			}
		}
	}
	return err
}

// adoptOrder makes o a reservation; one that is held here since a former file, and paid by now, is confirmed. It gives why what stands
// here is not what the file says; "" if it is. After an error an op may still belong to the deducter, and nothing of it is looked at.
func (s *Server) adoptOrder(ctx context.Context, o *openOrder) (why string, err error) {
	op, err := s.adoption(ctx, o)
	if err != nil {
		return "", err
	}
	if err := s.run(ctx, op); err != nil {
		return "", err
	}
	if row := op.Result.Row; o.paid && op.Result.Verdict == stock.VerdictDone && row.State == stock.StateHeld {
		op = &stock.Op{Kind: stock.OpConfirm, ID: row.ID, OrderRef: o.ref, Reason: importedReason, Actor: actorOf(ctx)}
		if err := s.run(ctx, op); err != nil {
			return "", err
		}
	}
	switch op.Result.Verdict {
	case stock.VerdictDone, stock.VerdictStale: // stale: it was released while it was to be confirmed
		return o.unlike(op.Result.Row), nil
	}
	return whyNotAdopted(op), nil
}

// unlike says in what row is not what the file says of o, "" if it is.
func (o *openOrder) unlike(row *stock.Row) string {
	said := stock.StateHeld
	if o.paid {
		said = stock.StateConfirmed
	}
	switch row.State {
	case said:
		return ""
	case stock.StateReleased:
		return fmt.Sprintf("is released here (%s), %s in the file", shorten(row.Reason), said)
	}
	return fmt.Sprintf("is %s here, %s in the file", row.State, said)
}

func whyNotAdopted(op *stock.Op) string {
	switch v := op.Result.Verdict; v {
	case stock.VerdictKeyReused:
		return "it is imported already, with other lines"
	case stock.VerdictUnknownSKU:
		return "the stock table has lost one of its SKUs"
	case stock.VerdictCorrupt:
		return "the stock row of one of its SKUs holds what cannot be sold from"
	default:
		return "the database said " + v.String()
	}
}

func (s *Server) adoption(ctx context.Context, o *openOrder) (*stock.Op, error) {
	try, err := drawTry()
	if err != nil {
		return nil, err
	}
	id := s.idOf(o)
	return &stock.Op{Kind: stock.OpAdopt, ID: id, Confirm: o.paid, OrderRef: o.ref, Reason: importedReason, Actor: actorOf(ctx),
		Reservation: &stock.Reservation{ID: id, Try: try, Fingerprint: stock.Fingerprint(o.lines), User: o.user, Route: stock.RouteImport,
			Lines: o.lines, Hold: o.hold, Keyed: true}}, nil
}

// drawTry draws a try; 0 would be none.
func drawTry() (stock.Try, error) {
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw a try: %w", err)
	}
	return stock.Try(cmp.Or(binary.BigEndian.Uint64(b[:]), 1)), nil
}

package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
	"github.com/stockgate/stockgate/stock"
)

// fleet starts n gateways at once and waits until all are ready.
func (w *world) fleet(n int) []*gateway {
	w.t.Helper()
	started := make([]*gateway, n)
	for i := range started {
		started[i] = w.newGateway(testservices.FreePort(w.t), testservices.FreePort(w.t))
		started[i].start()
	}
	for _, g := range started {
		g.awaitReady()
	}
	return started
}

// place sends one order, or a cart. Of a cart the reply is filed under the SKU that a refusal names.
func (g *gateway) place(o wish) told {
	route, path := o.route()
	got := told{Reply: stock.Reply{Route: route, User: o.user, Request: o.key, SKU: o.lines[0].SKU, Qty: o.lines[0].Qty}}
	g.post(path, o.body(), o.key, &got)
	for _, line := range o.lines {
		if line.SKU == got.decidedBy {
			got.SKU, got.Qty = line.SKU, line.Qty
		}
	}
	return got
}

// each is one unit of each SKU.
func each(skus ...string) []stock.Line {
	lines := make([]stock.Line, len(skus))
	for i, sku := range skus {
		lines[i] = stock.Line{SKU: sku, Qty: 1}
	}
	return lines
}

// atOnce calls do for 0 … n-1, all released at the same moment, and waits for all.
func atOnce(n int, do func(i int)) {
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			do(i)
		})
	}
	close(begin)
	wg.Wait()
}

// ask lets every wish be sent at the same moment, spread over the gateways in turn.
func (w *world) ask(wishes []wish) []told {
	replies := make([]told, len(wishes))
	atOnce(len(wishes), func(i int) { replies[i] = w.gateways[i%len(w.gateways)].place(wishes[i]) })
	return replies
}

func shuffled[T any](seed uint64, items []T) []T {
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

// sql is the database as an operator sees it: beside the product, past the proxies.
func (w *world) sql() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("postgres", w.dsn)
	if err != nil {
		w.t.Fatal(err)
	}
	db.SetMaxOpenConns(2)
	w.t.Cleanup(func() { _ = db.Close() })
	return db
}

// number is the one number that a query gives.
func number(t testing.TB, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// ledgerOf counts the ledger rows of a reservation by their kinds.
func ledgerOf(t testing.TB, db *sql.DB, id stock.ID) map[stock.LedgerKind]int {
	t.Helper()
	rows, err := db.Query(`SELECT kind, count(*) FROM stockgate.ledger WHERE reservation_id = $1 GROUP BY kind`, id.String())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	kinds := map[stock.LedgerKind]int{}
	for rows.Next() {
		var kind stock.LedgerKind
		var n int
		if err := rows.Scan(&kind, &n); err != nil {
			t.Fatal(err)
		}
		kinds[kind] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return kinds
}

// tell sends a notice about a reservation until the gateway has answered, and gives status and code of the answer.
func (g *gateway) tell(id stock.ID, notice, body string) (status int, code stock.Code) {
	deadline := time.Now().Add(patience)
	for {
		status, answer := g.try("POST", "/v1/reservations/"+id.String()+"/"+notice, body)
		if status != 0 && status < 500 {
			var p struct{ Code stock.Code }
			_ = decode(answer, &p)
			return status, p.Code
		}
		if time.Now().After(deadline) {
			g.w.t.Errorf("%s %s: no answer, last %d %s", notice, id, status, answer)
			return status, ""
		}
		<-time.After(50 * time.Millisecond)
	}
}

// state is where a reservation stands.
func (g *gateway) state(id stock.ID) (view struct{ State, Outcome, Reason string }) {
	status, body := g.get("/v1/reservations/" + id.String())
	if status == 200 {
		_ = decode(body, &view)
	}
	return view
}

// eventuallyState waits until a reservation is in a state.
func (g *gateway) eventuallyState(id stock.ID, want stock.State) {
	g.w.t.Helper()
	g.w.eventually(fmt.Sprintf("%s is %s", id, want), func() string {
		if got := g.state(id); got.State != want.String() {
			return fmt.Sprintf("%+v", got)
		}
		return ""
	})
}

// sampled runs during and, beside it, the checkers that hold at any time, again and again.
func (w *world) sampled(t *testing.T, skus []string, during func()) {
	t.Helper()
	store, over := w.store(t), make(chan struct{})
	var wg sync.WaitGroup
	n := 0
	defer func() {
		close(over)
		wg.Wait()
		t.Logf("checked %d times meanwhile", n)
	}()
	wg.Go(func() {
		for {
			for _, v := range stock.Check(w.snapshot(t, store, nil, nil, skus), false) {
				t.Errorf("sampled: %s", v)
			}
			n++
			select {
			case <-over:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	during()
}

// requireNoLog fails if a gateway has written one of the texts.
func (w *world) requireNoLog(t *testing.T, texts ...string) {
	t.Helper()
	for _, g := range w.gateways {
		for _, text := range texts {
			if strings.Contains(g.log.String(), text) {
				t.Errorf("%s logged %q", g.public, text)
			}
		}
	}
}

// metricOf is the sum of a metric's series; 0 if there is none.
func metricOf(text, name string) (sum float64) {
	for line := range strings.Lines(text) {
		series, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(series, "{"); !found || bare != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}

// unquoted is the value of an argument of an inline command.
func unquoted(argument string) string {
	if value, err := strconv.Unquote(argument); err == nil {
		return value
	}
	return argument
}

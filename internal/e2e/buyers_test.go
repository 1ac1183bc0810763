package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stockgate/stockgate/stock"
)

// want is what one buyer asks for.
type want struct {
	sku, user, key string // key "" = no Idempotency-Key
	qty            int64
}

// told is what a buyer was told: the reply that the checkers look at, and what only tests look at.
type told struct {
	stock.Reply
	source     string
	replayed   string
	body       string
	retryAfter string
	decidedBy  string // SKU of a cart that a refusal names
	err        error
}

// buy sends one order to g.
func (g *gateway) buy(b want) told {
	if b.qty == 0 {
		b.qty = 1
	}
	got := told{Reply: stock.Reply{Route: "place-order", User: b.user, Request: b.key, SKU: b.sku, Qty: b.qty}}
	g.post("/orders", fmt.Sprintf(`{"sku":%q,"qty":%d,"user":%q}`, b.sku, b.qty, b.user), b.key, &got)
	return got
}

// post sends one request to the public side and fills in what was told.
func (g *gateway) post(path, body, key string, got *told) {
	req, err := http.NewRequest("POST", g.public+path, strings.NewReader(body))
	if err != nil {
		got.err = err
		return
	}
	req.GetBody = nil // or the transport sends a request with an Idempotency-Key again by itself, and hides that the first one had no answer
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := g.w.http.Do(req)
	if err != nil {
		got.err = err
		return
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		got.err = err
		return
	}
	got.read(resp, raw)
}

func (t *told) read(resp *http.Response, raw []byte) {
	t.Status, t.body = resp.StatusCode, string(raw)
	t.source, t.replayed = resp.Header.Get("Stockgate-Source"), resp.Header.Get("Stockgate-Replayed")
	t.retryAfter = resp.Header.Get("Retry-After")
	if id := resp.Header.Get("Stockgate-Reservation"); id != "" {
		t.Reservation, _ = stock.ParseID(id)
	}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p struct{ Code, Limit, SKU string }
		_ = json.Unmarshal(raw, &p)
		t.Code, t.Limit, t.decidedBy = stock.Code(p.Code), p.Limit, p.SKU
		return
	}
	if t.replayed == "resolved" {
		return // not the backend's answer: a sender that was taken for dead may still come with that
	}
	sum := sha256.Sum256(raw)
	t.Answer = hex.EncodeToString(sum[:8])
}

func (t told) String() string {
	if t.err != nil {
		return "no answer: " + t.err.Error()
	}
	return fmt.Sprintf("%d %s from %s (limit %q, replayed %q): %.200s", t.Status, t.Code, t.source, t.Limit, t.replayed, t.body)
}

// sale lets many buyers buy at once: conns at a time, each of wants once, spread over the gateways in turn. progress, if not nil, is
// told the number of answers after each one.
func (w *world) sale(wants []want, conns int, progress func(answered int)) []told {
	replies := make([]told, len(wants))
	var next, answered atomic.Int64
	var wg sync.WaitGroup
	for range conns {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(wants) {
					return
				}
				replies[i] = w.gateways[i%len(w.gateways)].buy(wants[i])
				if n := int(answered.Add(1)); progress != nil {
					progress(n)
				}
			}
		})
	}
	wg.Wait()
	return replies
}

// distinct makes n buyers of one unit of sku, each with a key of its own.
func distinct(sku, series string, n int) []want {
	wants := make([]want, n)
	for i := range wants {
		name := fmt.Sprintf("%s-%d", series, i)
		wants[i] = want{sku: sku, user: "u-" + name, key: "k-" + name}
	}
	return wants
}

// tally counts replies by status and code, e.g. "201 " and "409 SOLD_OUT".
func tally(replies []told) map[string]int {
	counts := map[string]int{}
	for _, r := range replies {
		if r.err != nil {
			counts["no answer: "+r.err.Error()]++
			continue
		}
		counts[fmt.Sprintf("%d %s", r.Status, r.Code)]++
	}
	return counts
}

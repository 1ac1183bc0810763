package load

import (
	"fmt"
	"strconv"
)

// Plan says what each request asks for. It is a pure function of Seed and the request's number, so that a run can be repeated and
// no worker has to share anything. The same seed names the same request ids: a second run with it gets the first one's answers.
type Plan struct {
	Seed   uint64
	SKUs   []string // at least one
	Hot    float64  // share of requests for SKUs[0], the rest is even over all; 0: all even
	Buyers int64    // users; 0: each request is of a user of its own
	Qty    int64    // of each order, at least 1
	Keys   bool     // send an Idempotency-Key
	Again  float64  // share of requests that repeat one of the last 1000: a double click or a retry with the same request id
}

// Order is one request's wish.
type Order struct {
	SKU  string
	Qty  int64
	User string
	Key  string // "" = none
}

// The streams of randomness of one request. Their values are arbitrary and fixed: they belong to what a seed means.
const (
	streamAgain = iota + 1
	streamBack
	streamHot
	streamSKU
	streamUser
)

// againWindow is how far back a repeated request may lie.
const againWindow = 1000

// Identity is the number of the order that request i asks for: i itself, or an earlier one that it repeats.
func (p *Plan) Identity(i int64) int64 {
	if i == 0 || p.Again <= 0 || unit(p.draw(i, streamAgain)) >= p.Again {
		return i
	}
	return i - 1 - int64(p.draw(i, streamBack)%uint64(min(i, againWindow)))
}

// Order is what request i asks for.
func (p *Plan) Order(i int64) Order {
	n := p.Identity(i)
	o := Order{SKU: p.sku(n), Qty: p.Qty}
	if p.Buyers > 0 {
		o.User = "u" + strconv.FormatUint(p.draw(n, streamUser)%uint64(p.Buyers), 10)
	} else {
		o.User = "u" + strconv.FormatInt(n, 10)
	}
	if p.Keys {
		o.Key = fmt.Sprintf("bench-%x-%d", p.Seed, n)
	}
	return o
}

func (p *Plan) sku(n int64) string {
	if unit(p.draw(n, streamHot)) < p.Hot {
		return p.SKUs[0]
	}
	return p.SKUs[p.draw(n, streamSKU)%uint64(len(p.SKUs))]
}

// draw is a random number that depends on seed, n and stream alone (SplitMix64).
func (p *Plan) draw(n int64, stream uint64) uint64 {
	z := p.Seed + uint64(n)*0x9e3779b97f4a7c15 + stream*0xd1342543de82ef95
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit maps to [0, 1).
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
	"github.com/stockgate/stockgate/stock"
)

// customers are the shop's side of what was bought: each reservation has one, who pays, cancels, gives back or forgets.
type customers struct {
	l    *lifeWorld
	seed uint64
	hold time.Duration // of every order
	// mayBeLost reports whether a reservation of those lines may be known to nobody. Nil: none may.
	mayBeLost func([]stock.Line) bool
	busy      chan struct{} // a token for each that is at it
	wg        sync.WaitGroup

	mu     sync.Mutex
	met    map[stock.ID]bool
	counts map[string]int
}

func newCustomers(l *lifeWorld, seed uint64) *customers {
	return &customers{l: l, seed: seed, hold: lifeHold, busy: make(chan struct{}, 48), met: map[stock.ID]bool{}, counts: map[string]int{}}
}

func (c *customers) String() string { return fmt.Sprint(c.counts) }

// bought begins the customer of a reservation, once.
func (c *customers) bought(id stock.ID, lines []stock.Line) {
	c.meet(id, lines, rand.New(rand.NewPCG(c.seed, uint64(id[0])<<56|uint64(id[5])<<32|uint64(id[9])<<16|uint64(id[15]))))
}

// meet is bought of a customer who decides by rng.
func (c *customers) meet(id stock.ID, lines []stock.Line, rng *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met[id] {
		return
	}
	c.met[id] = true
	c.wg.Go(func() { c.live(id, lines, rng) })
}

func (c *customers) wait() { c.wg.Wait() }

func (c *customers) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// live is what one customer does. Who forgets does nothing: the hold ends by itself.
func (c *customers) live(id stock.ID, lines []stock.Line, rng *rand.Rand) {
	s := shopper{c: c, id: id, rng: rng, mayBeLost: c.mayBeLost != nil && c.mayBeLost(lines)}
	switch dice := rng.IntN(100); {
	case dice < 35:
		c.count("pay")
		s.pay()
	case dice < 50:
		c.count("cancel")
		s.cancel()
	case dice < 58:
		c.count("refund all")
		s.pay()
		s.cancel()
	case dice < 68:
		c.count("refund a line")
		if s.pay() {
			s.refund(lines[rng.IntN(len(lines))])
		}
	case dice < 78:
		c.count("pay late")
		<-time.After(c.hold - 500*time.Millisecond + time.Duration(rng.IntN(3000))*time.Millisecond)
		s.pay()
	default:
		c.count("forget")
	}
}

// shopper tells the order service first and then, as the order service would, the gateways.
type shopper struct {
	c   *customers
	id  stock.ID
	rng *rand.Rand
	// mayBeLost: the gateways need not know the reservation.
	mayBeLost bool
}

// order is what the order service has of the reservation.
func (s *shopper) order() (orderservice.Order, bool) {
	return s.c.l.orders.ByReservation(s.id.String())
}

// shop calls the order service, again if it is slow: what is asked of it may be asked twice.
func (s *shopper) shop(method, path, body string) bool {
	s.c.busy <- struct{}{}
	defer func() { <-s.c.busy }()
	for deadline := time.Now().Add(patience); ; {
		req, err := http.NewRequest(method, s.c.l.backend+path, strings.NewReader(body))
		if err != nil {
			s.c.l.t.Error(err)
			return false
		}
		resp, err := s.c.l.http.Do(req)
		if err == nil {
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}
		if time.Now().After(deadline) {
			s.c.l.t.Errorf("order service: %v", err)
			return false
		}
	}
}

// pay pays the order and tells the gateways; an order that was closed meanwhile cannot be paid. A payment that comes too late is given
// back.
func (s *shopper) pay() bool {
	o, known := s.order()
	if !known || !s.shop(http.MethodPost, "/orders/"+o.Order+"/pay", "") {
		s.c.count("not payable")
		return false
	}
	status, code := s.tell("confirm", fmt.Sprintf(`{"order_ref":%q}`, o.Order))
	if status == http.StatusConflict && code == stock.CodeReleased {
		s.c.count("paid without stock")
		s.shop(http.MethodDelete, "/orders/"+o.Order, "")
		return false
	}
	s.expect("confirm", status, code)
	return status == http.StatusOK
}

// cancel cancels the order, paid or not, and tells the gateways.
func (s *shopper) cancel() {
	o, known := s.order()
	if !known || !s.shop(http.MethodDelete, "/orders/"+o.Order, "") {
		s.c.count("not cancellable")
		return
	}
	status, code := s.tell("release", `{"reason":"cancelled"}`)
	s.expect("release", status, code)
}

// expect fails the test unless a notice was taken.
func (s *shopper) expect(what string, status int, code stock.Code) {
	if status == http.StatusNotFound && s.mayBeLost {
		s.c.count("lost")
	} else if status != http.StatusOK {
		s.c.l.t.Errorf("%s %s: %d %s", what, s.id, status, code)
	}
}

// refund takes one line of the order back.
func (s *shopper) refund(line stock.Line) {
	o, _ := s.order()
	lines := fmt.Sprintf(`[{"sku":%q,"qty":%d}]`, line.SKU, 1)
	op := "refund-" + o.Order
	if !s.shop(http.MethodPost, "/orders/"+o.Order+"/refund", fmt.Sprintf(`{"op":%q,"lines":%s}`, op, lines)) {
		s.c.count("not refundable")
		return
	}
	status, code := s.tell("release", fmt.Sprintf(`{"reason":"refund","op":%q,"lines":%s}`, op, lines))
	s.expect("release of a line", status, code)
}

// tell sends a notice until a gateway has answered, and one time in four once more: notices come twice.
func (s *shopper) tell(what, body string) (int, stock.Code) {
	status, code := s.tellOnce(what, body)
	if s.rng.IntN(4) == 0 {
		again, other := s.tellOnce(what, body)
		if (again != status || other != code) && !s.mayBeLost {
			s.c.l.t.Errorf("%s %s: %d %s, then %d %s", what, s.id, status, code, again, other)
		}
	}
	return status, code
}

func (s *shopper) tellOnce(what, body string) (int, stock.Code) {
	deadline := time.Now().Add(patience)
	for {
		status, answer := s.notice(what, body)
		if status != 0 && status < 500 {
			var p struct{ Code stock.Code }
			_ = json.Unmarshal([]byte(answer), &p)
			return status, p.Code
		}
		if time.Now().After(deadline) {
			s.c.l.t.Errorf("%s %s: no answer, last %d %s", what, s.id, status, answer)
			return status, ""
		}
		<-time.After(50 * time.Millisecond)
	}
}

func (s *shopper) notice(what, body string) (int, string) {
	s.c.busy <- struct{}{}
	defer func() { <-s.c.busy }()
	gateways := s.c.l.gateways
	return gateways[s.rng.IntN(len(gateways))].try(http.MethodPost, "/v1/reservations/"+s.id.String()+"/"+what, body)
}

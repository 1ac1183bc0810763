package integratetest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
)

// shop is examples/orderservice behind a gateway with the configuration that lies beside it.
type shop struct {
	*gateway
	file    string // of the orders
	process *process
}

// newShop starts both. hold is that of every order.
func newShop(t *testing.T, hold string) *shop {
	t.Helper()
	s := &shop{gateway: newGateway(t, testservices.FreePort(t)), file: filepath.Join(t.TempDir(), "orders.db")}
	s.configure(hold)
	s.serve(s.control)
	s.start()
	s.setStock(t, "sku-1001", 10)
	s.setStock(t, "sku-1002", 10)
	return s
}

// configure takes the example's configuration with addresses, a token and a hold of this test.
func (s *shop) configure(hold string) {
	s.t.Helper()
	address := func(url string) string { return strings.TrimPrefix(url, "http://") }
	yaml := read(s.t, "examples/orderservice/stockgate.yaml")
	for _, change := range [][2]string{
		{`listen: "127.0.0.1:8080"`, `listen: "` + address(s.public) + `"`},
		{`listen: "127.0.0.1:9090"`, `token: "` + token + `", listen: "` + address(s.control) + `"`},
		{"http://127.0.0.1:3000", fmt.Sprintf("http://127.0.0.1:%d", s.backend)},
		{"dsn: stockgate.db", `dsn: "` + filepath.Join(s.t.TempDir(), "stockgate.db") + `"`},
		{"secret: only-for-trying-it-out", "secret: " + secret},
		{"order_delay: 10s", "order_delay: 5s"},
		{"hold: 2m", "hold: " + hold},
	} {
		if strings.Count(yaml, change[0]) != 1 {
			s.t.Fatalf("examples/orderservice/stockgate.yaml does not have %s once", change[0])
		}
		yaml = strings.Replace(yaml, change[0], change[1], 1)
	}
	if err := os.WriteFile(s.config, []byte(yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// serve starts the order service, which tells control what its orders came to.
func (s *shop) serve(control string) {
	s.t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", s.backend)
	s.process = start(s.t, "http://"+listen+"/orders/count", nil, filepath.Join(built, "orderservice"),
		"--listen", listen, "--db", s.file, "--control", control, "--token", token, "--key", keyID+"="+secret)
}

// buy places an order for one unit and returns its path and its reservation.
func (s *shop) buy(t *testing.T, key string) (path, reservation string) {
	t.Helper()
	a := s.order(t, "/orders", key, `{"sku":"sku-1001","qty":1}`)
	return "/orders/" + a.order.Order, a.order.Reservation
}

// does makes a step of an order's life through the gateway and expects a status.
func (s *shop) does(t *testing.T, method, path, body string, want int) *answer {
	t.Helper()
	req, err := http.NewRequest(method, s.public+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a := do(t, req)
	if a.status != want {
		t.Errorf("%s %s: %d %s, want %d", method, path, a.status, a.body, want)
	}
	return a
}

// An order is paid, cancelled, refunded; stockgate hears of each.
func TestTheOrderServiceOfTheExamples(t *testing.T) {
	t.Parallel()
	s := newShop(t, "15m")

	path, reservation := s.buy(t, "paid")
	s.does(t, "POST", path+"/pay", "", http.StatusOK)
	s.does(t, "POST", path+"/pay", "", http.StatusOK)
	if r := s.becomes(t, reservation, "confirmed"); r.History[0].Actor != "orderservice" || "/orders/"+r.OrderRef != path {
		t.Errorf("confirmed by %q as %q", r.History[0].Actor, r.OrderRef)
	}
	s.does(t, "POST", path+"/cancel", "", http.StatusConflict)
	if again, _ := s.buy(t, "paid"); again != path {
		t.Errorf("the same request id again is %s, at first %s", again, path)
	}

	path, reservation = s.buy(t, "cancelled")
	s.does(t, "POST", path+"/cancel", "", http.StatusOK)
	s.becomes(t, reservation, "released")
	s.does(t, "POST", path+"/pay", "", http.StatusConflict)

	cart := s.order(t, "/checkout", "cart", `{"items":[{"sku":"sku-1002","quantity":3},{"sku":"sku-1001","quantity":1}]}`)
	path, reservation = "/orders/"+cart.order.Order, cart.order.Reservation
	part := `{"op":"r1","lines":[{"sku":"sku-1002","qty":2}]}`
	s.does(t, "POST", path+"/refund", part, http.StatusConflict) // it is not paid
	s.does(t, "POST", path+"/pay", "", http.StatusOK)
	for range 2 { // the same op is one refund
		s.does(t, "POST", path+"/refund", part, http.StatusOK)
	}
	s.does(t, "POST", path+"/refund", `{"op":"r1","lines":[{"sku":"sku-1002","qty":1}]}`, http.StatusConflict)
	s.does(t, "POST", path+"/refund", `{"op":"r2","lines":[{"sku":"sku-1002","qty":2}]}`, http.StatusConflict) // 1 is left
	testservices.Eventually(t, "2 of 3 are back", func() string {
		if left := s.available(t, "sku-1002"); left != 9 {
			return fmt.Sprintf("%d are available, want 9", left)
		}
		return ""
	})
	s.does(t, "POST", path+"/refund", "{}", http.StatusOK)
	s.becomes(t, reservation, "released")
	if a, b := s.available(t, "sku-1001"), s.available(t, "sku-1002"); a != 9 || b != 10 {
		t.Errorf("%d and %d are available, want 9 and 10: one order is paid", a, b)
	}
	if a := s.does(t, "GET", "/orders/count", "", http.StatusOK); a.body != `{"orders":1}` {
		t.Errorf("count: %s", a.body)
	}

	base := fmt.Sprintf("http://127.0.0.1:%d", s.backend)
	takesWhatIsSigned(t, base)
	oneOrderPerReservation(t, base)
	makesVoid(t, base)
}

// The order service dies after it has taken the payment and before stockgate has heard of it. Started again, it tells.
func TestAPaymentIsConfirmedAfterACrash(t *testing.T) {
	t.Parallel()
	s := newShop(t, "15m")
	s.process.kill()
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // takes the call and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	s.serve("http://" + deaf.Addr().String())

	path, reservation := s.buy(t, "paid")
	s.does(t, "POST", path+"/pay", "", http.StatusOK)
	conn, err := deaf.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.process.kill()
	if r := s.reservation(t, reservation); r.State != "held" {
		t.Fatalf("%s before anybody has told", r.State)
	}
	s.serve(s.control)
	s.becomes(t, reservation, "confirmed")
}

// Nobody pays: at the end of the hold the gateway asks, the order is closed, and the units can be sold again. The buyer's page, which has
// only its request id, sees each.
func TestAnUnpaidOrderIsClosedAndReleased(t *testing.T) {
	t.Parallel()
	s := newShop(t, "8s")
	path, reservation := s.buy(t, "unpaid")
	status := func() string {
		req, err := http.NewRequest(http.MethodGet, s.public+"/orders/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User-Id", shopper)
		req.Header.Set("Idempotency-Key", "unpaid")
		return do(t, req).order.State
	}
	if state := status(); state != "held" {
		t.Errorf("the page sees %q, want held", state)
	}
	if r := s.becomes(t, reservation, "released"); r.Reason != "cancelled" {
		t.Errorf("released because of %q, want because the order service has closed it", r.Reason)
	}
	if state := status(); state != "released" {
		t.Errorf("the page sees %q, want released", state)
	}
	s.does(t, "POST", path+"/pay", "", http.StatusConflict)
	if a := s.does(t, "GET", path, "", http.StatusOK); a.order.State != "cancelled" {
		t.Errorf("the order is %q", a.order.State)
	}
	if left := s.available(t, "sku-1001"); left != 10 {
		t.Errorf("%d are available, want 10", left)
	}
}

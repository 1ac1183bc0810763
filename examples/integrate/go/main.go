// Package main is an order service that does all that stockgate needs of one, with the standard library alone. docs/integrate.md
// explains it piece by piece. It keeps orders in memory; where that matters, a comment says what a database does instead.
//
//	LISTEN=127.0.0.1:3000 SIGN_SECRET=… CONTROL_URL=http://127.0.0.1:9090 CONTROL_TOKEN=… go run ./examples/integrate/go
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// line is a quantity of one SKU.
type line struct {
	SKU string `json:"sku"`
	Qty int64  `json:"qty"`
}

// order is one order of the shop.
type order struct {
	Order       string `json:"order"`
	Reservation string `json:"reservation"`
	Lines       []line `json:"lines"`
	State       string `json:"state"` // open | paid | cancelled
	RefundDue   bool   `json:"refund_due,omitempty"`

	closes time.Time     // from then on it is not paid any more
	told   chan struct{} // closed once stockgate has been told the last that there was to tell; nil: nothing yet
}

// service is the order service.
type service struct {
	keys    map[string][]byte // secrets of upstreams.<name>.sign.keys by their id
	control string            // stockgate's control side
	token   string
	client  *http.Client

	mu     sync.Mutex
	orders map[string]*order // by reservation: a table with a unique column
}

func main() {
	s := &service{
		keys:    map[string][]byte{"k1": []byte(os.Getenv("SIGN_SECRET"))},
		control: os.Getenv("CONTROL_URL"),
		token:   os.Getenv("CONTROL_TOKEN"),
		client:  &http.Client{Timeout: 15 * time.Second}, // a call waits in the same queue as the buyers
		orders:  map[string]*order{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.place)
	mux.HandleFunc("POST /checkout", s.place) // a cart: the same, with more lines
	mux.HandleFunc("GET /orders/by-reservation/{reservation}", s.resolve)
	mux.HandleFunc("POST /orders/by-reservation/{reservation}/void", s.makeVoid)
	mux.HandleFunc("POST /orders/{reservation}/pay", s.pay)
	mux.HandleFunc("POST /orders/{reservation}/cancel", s.cancel)
	mux.HandleFunc("POST /orders/{reservation}/refund", s.refund) // ?sku=&qty=&op= for a part
	mux.HandleFunc("POST /orders/{reservation}/extend", s.extend) // ?hold=25m
	log.Fatal(http.ListenAndServe(os.Getenv("LISTEN"), mux))
}

// signed reports whether a gateway that knows one of the keys has sent exactly this request within the last five minutes.
func (s *service) signed(r *http.Request, body []byte) bool {
	part := map[string]string{}
	for field := range strings.SplitSeq(r.Header.Get("Stockgate-Signature"), ",") {
		name, value, _ := strings.Cut(field, "=")
		part[name] = value
	}
	at, err := strconv.ParseInt(part["t"], 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false // a recorded request is worth nothing later
	}
	secret, known := s.keys[part["k"]]
	given, err := hex.DecodeString(part["v1"])
	if !known || err != nil {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "v1\n%s\n%s\n%s\n%s\n%s\n%s\n%x", part["t"], r.Method, r.RequestURI, r.Header.Get("Stockgate-Reservation"),
		r.Header.Get("Stockgate-Lines"), r.Header.Get("Stockgate-Forward-By"), sha256.Sum256(body))
	return hmac.Equal(given, mac.Sum(nil))
}

// place makes one order per reservation.
func (s *service) place(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || !s.signed(r, body) {
		reject(w, http.StatusUnauthorized, "not from the gateway")
		return
	}
	reservation := r.Header.Get("Stockgate-Reservation")
	lines := parseLines(r.Header.Get("Stockgate-Lines"))
	s.mu.Lock() // from the look at the clock to the new order: one transaction
	defer s.mu.Unlock()
	o := s.orders[reservation]
	switch {
	case o != nil && o.State == "cancelled":
		reject(w, http.StatusGone, "this order is cancelled")
		return
	case o == nil && time.Now().After(unixMilli(r.Header.Get("Stockgate-Forward-By"))):
		reject(w, http.StatusGone, "too late")
		return
	case o == nil:
		o = &order{Order: fmt.Sprint("order-", len(s.orders)+1), Reservation: reservation, Lines: lines, State: "open",
			closes: unixMilli(r.Header.Get("Stockgate-Expires")).Add(-margin)}
		s.orders[reservation] = o // INSERT … ON CONFLICT (reservation) DO NOTHING, then read the row that is there
	}
	answer(w, http.StatusCreated, o)
}

// margin is how much earlier than the gateway the shop lets go, so that clocks which differ a little do no harm.
const margin = 2 * time.Second

// reject says that there is no order and will be none, so that the units go back at once.
func reject(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Stockgate-Outcome", "rejected")
	answer(w, status, map[string]string{"error": why})
}

var lineFormat = regexp.MustCompile(`"([^"]+)";q=(\d+)`)

// parseLines reads Stockgate-Lines: "sku-1";q=2, "sku-2";q=1
func parseLines(header string) (lines []line) {
	for _, m := range lineFormat.FindAllStringSubmatch(header, -1) {
		qty, _ := strconv.ParseInt(m[2], 10, 64)
		lines = append(lines, line{m[1], qty})
	}
	return lines
}

func unixMilli(header string) time.Time {
	ms, _ := strconv.ParseInt(header, 10, 64) // absent: long ago
	return time.UnixMilli(ms)
}

// resolve answers what became of a reservation. An order that is not paid at its end is closed by the question itself.
func (s *service) resolve(w http.ResponseWriter, r *http.Request) {
	if !s.signed(r, nil) {
		answer(w, http.StatusUnauthorized, nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[r.PathValue("reservation")]
	if o == nil {
		answer(w, http.StatusNotFound, nil)
		return
	}
	o.closeIfDue()
	answer(w, http.StatusOK, map[string]string{"state": o.State})
}

// closeIfDue closes an order that nobody has paid in time. After it, no payment is taken.
func (o *order) closeIfDue() {
	if o.State == "open" && !time.Now().Before(o.closes) { // UPDATE … SET state = 'cancelled' WHERE state = 'open' AND closes <= now()
		o.State = "cancelled"
	}
}

// pay takes the money only if the order can still be paid, and then confirms.
func (s *service) pay(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(o *order) bool {
		o.closeIfDue()
		if o.State == "open" { // capture the payment after this is committed; if it was not, void it
			o.State = "paid"
			s.tell(o, "confirm", map[string]any{"order_ref": o.Order})
		}
		return o.State == "paid"
	})
}

// cancel cancels what is not paid.
func (s *service) cancel(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(o *order) bool {
		if o.State == "open" {
			o.State = "cancelled"
			s.tell(o, "release", map[string]any{"order_ref": o.Order, "reason": "cancelled", "unless_paid": true})
		}
		return o.State == "cancelled"
	})
}

// refund takes back a paid order, or so much of a line. op makes a part safe to repeat.
func (s *service) refund(w http.ResponseWriter, r *http.Request) {
	sku, op := r.FormValue("sku"), r.FormValue("op")
	s.change(w, r, func(o *order) bool {
		switch {
		case o.State != "paid":
			return false
		case sku == "":
			o.State = "cancelled"
			s.tell(o, "release", map[string]any{"order_ref": o.Order, "reason": "refunded"})
		default:
			qty, _ := strconv.ParseInt(r.FormValue("qty"), 10, 64)
			s.tell(o, "release", map[string]any{"lines": []line{{sku, qty}}, "op": op, "reason": "refunded"})
		}
		return true
	})
}

// tell has stockgate told, after all that it was to be told of the order before: a refund must not overtake its confirm. In a real
// service a call is a row of an outbox, written in the transaction of the change, so that no crash in between loses it.
func (s *service) tell(o *order, call string, body any) {
	before, done := o.told, make(chan struct{})
	o.told = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		s.until(o, call, body)
	}()
}

// until makes a call until it has its effect. All calls may be repeated.
func (s *service) until(o *order, call string, body any) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, time.Minute) {
		status, text, err := s.post(o.Reservation, call, body)
		switch {
		case err == nil && status == http.StatusOK:
			return
		case err == nil && status == http.StatusConflict && call == "confirm": // RELEASED: the units are somebody else's
			s.mu.Lock()
			defer s.mu.Unlock()
			o.State, o.RefundDue = "cancelled", true
			return
		case err == nil && status < 500 && status != http.StatusTooManyRequests:
			log.Printf("%s of %s: %d %s", call, o.Order, status, text) // a mistake of ours: repeating it does not help
			return
		}
		time.Sleep(wait)
	}
}

// post makes one call of the control API.
func (s *service) post(reservation, call string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequest(http.MethodPost, s.control+"/v1/reservations/"+reservation+"/"+call, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Stockgate-Actor", "orders") // who did it, in the ledger
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// extend gives the buyer more time. The new end counts only once stockgate has agreed.
func (s *service) extend(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	o := s.orders[r.PathValue("reservation")]
	s.mu.Unlock()
	if o == nil {
		answer(w, http.StatusNotFound, nil)
		return
	}
	status, text, err := s.post(o.Reservation, "extend", map[string]any{"hold": r.FormValue("hold")})
	var granted struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	s.change(w, r, func(o *order) bool {
		if err != nil || status != http.StatusOK || json.Unmarshal(text, &granted) != nil {
			return false
		}
		o.closes = granted.ExpiresAt.Add(-margin)
		return true
	})
}

// makeVoid ends an order for which there are no units, and lets its reservation have none any more: the request may still be on its way.
func (s *service) makeVoid(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || !s.signed(r, body) {
		answer(w, http.StatusUnauthorized, nil)
		return
	}
	reservation := r.PathValue("reservation")
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[reservation]
	if o == nil {
		o = &order{Reservation: reservation} // INSERT … ON CONFLICT (reservation) DO NOTHING, then lock the row that is there
		s.orders[reservation] = o
	}
	o.RefundDue = o.RefundDue || o.State == "paid" // and tell the buyer
	o.State = "cancelled"
	answer(w, http.StatusOK, nil)
}

// change makes one step of an order's life and answers the order; 409: it cannot be.
func (s *service) change(w http.ResponseWriter, r *http.Request, step func(*order) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[r.PathValue("reservation")]
	switch {
	case o == nil:
		answer(w, http.StatusNotFound, nil)
	case step(o):
		answer(w, http.StatusOK, o)
	default:
		answer(w, http.StatusConflict, o)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone; the order stands
}

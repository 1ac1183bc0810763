package orderservice

import (
	"cmp"
	"net"
	"net/http"
	"sync"
	"time"
)

// Fault is what goes wrong with one order, or with one question by reservation. The zero Fault is a service in order.
type Fault struct {
	Before Trouble // after the request was read, before the order is recorded
	Lose   bool    // the order is not recorded
	After  Trouble // before the answer is written
	// Status is answered in place of 201; 0: as usual. An order that was recorded stays so.
	Status int
	Header http.Header // added to the answer
	Body   []byte      // in place of the answer's; nil: as usual
}

// Trouble is a way to be slow or to break off. Its parts come in the order of the fields.
type Trouble struct {
	// Reached is called when an order comes here: the event that a test waits for. Nil: nobody waits.
	Reached func()
	Delay   time.Duration
	// Hang waits until the channel is closed or the service ends. A client that goes away changes nothing: an order service that
	// is slow still makes its order (C060).
	Hang <-chan struct{}
	// Close ends the connection without an answer; what would come after it is not done.
	Close Close
}

// Close is a way to end a connection.
type Close uint8

// The ways.
const (
	CloseNot Close = iota
	CloseFIN       // in order
	CloseRST       // reset
)

// script is what goes wrong and when.
type script struct {
	mu     sync.Mutex
	next   []Fault
	always Fault
}

func (s *script) add(faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, faults...)
}

func (s *script) set(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = f
}

// take is the fault of the next request.
func (s *script) take() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.next) == 0 {
		return s.always
	}
	f := s.next[0]
	s.next = s.next[1:]
	return f
}

// overrides reports whether the answer is not the usual one.
func (f Fault) overrides() bool { return f.Status != 0 || f.Body != nil }

func (f Fault) addHeaders(w http.ResponseWriter) {
	for name, values := range f.Header {
		w.Header()[name] = values
	}
}

// write writes the answer in place of the usual one, which would have status usual.
func (f Fault) write(w http.ResponseWriter, usual int) {
	f.addHeaders(w)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(cmp.Or(f.Status, usual))
	_, _ = w.Write(f.Body)
}

// suffer goes through the trouble and reports whether the connection is still there.
func (t Trouble) suffer(w http.ResponseWriter, ended <-chan struct{}) bool {
	if t.Reached != nil {
		t.Reached()
	}
	if t.Delay > 0 {
		timer := time.NewTimer(t.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
		}
	}
	if t.Hang != nil {
		select {
		case <-t.Hang:
		case <-ended:
		}
	}
	if t.Close == CloseNot {
		return true
	}
	cut(w, t.Close)
	return false
}

// cut ends the connection under w.
func cut(w http.ResponseWriter, how Close) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 or a recorder: net/http ends it in its way
	}
	if tcp, ok := conn.(*net.TCPConn); ok && how == CloseRST {
		_ = tcp.SetLinger(0) // unsent data is dropped and the peer gets a reset
	}
	_ = conn.Close()
}

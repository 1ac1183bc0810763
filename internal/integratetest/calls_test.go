package integratetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/stockgate/stockgate/internal/testservices"
)

// controlSide stands between an order service and the control side of its gateway. It notes what is called, and is out of order for the
// first confirm of each reservation.
type controlSide struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string][]string // by reservation: "confirm 200"
}

func newControlSide(t *testing.T, target string) *controlSide {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	c := &controlSide{calls: map[string][]string{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error { c.note(r.Request.URL.Path, r.StatusCode); return nil },
	}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "confirm" && len(c.of(path.Base(path.Dir(r.URL.Path)))) == 0 {
			c.note(r.URL.Path, http.StatusServiceUnavailable)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *controlSide) note(called string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := path.Base(path.Dir(called))
	c.calls[id] = append(c.calls[id], fmt.Sprintf("%s %d", path.Base(called), status))
}

func (c *controlSide) of(reservation string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls[reservation])
}

// heard waits until these calls about a reservation were answered, in this order and no others.
func (c *controlSide) heard(t *testing.T, reservation string, want ...string) {
	t.Helper()
	testservices.Eventually(t, fmt.Sprintf("stockgate hears %q", want), func() string {
		if got := c.of(reservation); !slices.Equal(got, want) {
			return fmt.Sprintf("it heard %q", got)
		}
		return ""
	})
}

package gateway

import (
	"testing"

	"github.com/stockgate/stockgate/stock"
)

func TestFoldedPathIsTheLoosestReading(t *testing.T) {
	t.Parallel()
	f := func(path, want string) {
		t.Helper()
		if got := string(appendFolded(nil, []byte(path))); got != want {
			t.Errorf("folded %q is %q, want %q", path, got, want)
		}
	}
	f("/", "/")
	f("/orders", "/orders")
	f("/orders/", "/orders/")
	f("/ORDERS", "/orders")
	f("//orders", "/orders")
	f("/./orders", "/orders")
	f("/a/../orders", "/orders")
	f("/../../orders", "/orders")
	f("/orders/.", "/orders/")
	f("/orders/x/..", "/orders/")
	f("/%6frders", "/orders")
	f("/%6Frders", "/orders")
	f("/%256frders", "/orders")
	f("/%25256frders", "/orders")
	f("/a%2f..%2forders", "/orders")
	f("/orders;v=1", "/orders")
	f("/a;x/../orders;y=/z", "/orders/z")
	f(`/a\..\orders`, "/orders")
	f("/orders%00.jpg", "/orders")
	f("/orders%20", "/orders")
	f("/orders%", "/orders%")
	f("/orders%4", "/orders%4")
	f("/orders%zz", "/orders%zz")
	f("/%2e%2e/orders", "/orders")
}

func TestNormalPathKeepsCaseAndDecodesOnce(t *testing.T) {
	t.Parallel()
	f := func(path, want string) {
		t.Helper()
		if got := string(appendNormal(nil, []byte(path))); got != want {
			t.Errorf("normal %q is %q, want %q", path, got, want)
		}
	}
	f("/A//b/./c/../d/", "/A/b/d/")
	f("/a%2Fb", "/a/b")
	f("/%2541", "/%41")
	f("/..", "/")
}

func TestSpelling(t *testing.T) {
	t.Parallel()
	f := func(path string, want bool) {
		t.Helper()
		if got := plainlySpelled([]byte(path)); got != want {
			t.Errorf("plainlySpelled(%q) is %v, want %v", path, got, want)
		}
	}
	f("/orders", true)
	f("/orders/", true)
	f("/Orders/a-b_c~d.e", true)
	f("/a%20b", true)
	f("/%C3%A9", true)
	f("/%c3%A9", false)
	f("/%41", false)
	f("/%2F", false)
	f("/%2E", false)
	f("/%00", false)
	f("/%25", false)
	f("/%5C", false)
	f("/a%", false)
	f("//a", false)
	f("/a//", false)
	f("/./a", false)
	f("/a/..", false)
	f("/a;b", false)
	f(`/a\b`, false)
}

func TestPatternsAreChecked(t *testing.T) {
	t.Parallel()
	f := func(path string, ok bool) {
		t.Helper()
		if err := checkPattern(path); (err == nil) != ok {
			t.Errorf("checkPattern(%q) is %v, want ok %v", path, err, ok)
		}
	}
	f("/", true)
	f("/*", true)
	f("/orders", true)
	f("/orders/*", true)
	f("", false)
	f("orders", false)
	f("/orders*", false)
	f("/a/*/b", false)
	f("//a", false)
	f("/a?b", false)
	f("/%41", false)
}

// A guarded /checkout/* has /checkout too: a catch-all behind it must not take what a backend could take for an order.
func TestGuardedPrefixOwnsItsRoot(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Routes[0].Path = "/checkout/*"
		c.Routes[0].Methods = []string{"POST"}
	})
	ask := func(method, target string) reply {
		return g.do(method + " " + target + " HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + goodBody)
	}
	for _, target := range []string{"/Checkout", "/checkout;v=1", "/%63heckout", "//checkout", "/checkout%20", "/x/../checkout", "/checkout%00",
		"/CHECKOUT/", "/checkout//", "/checkout/.", "/checkout/x/.."} {
		ask("POST", target).wants(t, 400, stock.CodeBadRequest)
		ask("PUT", target).wants(t, 400, stock.CodeBadRequest)
	}
	for _, target := range []string{"/checkout", "/checkout/", "/checkout/7"} {
		ask("PUT", target).wants(t, 405, stock.CodeMethodNotAllowed)
	}
	if got := b.requests(); len(got) > 0 {
		t.Fatalf("the backend got %q", got[0].head)
	}
	for i, target := range []string{"/checkout", "/checkout/", "/checkout/7"} {
		if got := ask("POST", target); got.StatusCode != 201 || len(g.adm.asked()) != i+1 {
			t.Errorf("POST %s: %d, the admission was asked %d times, want %d", target, got.StatusCode, len(g.adm.asked()), i+1)
		}
	}
	if got := ask("POST", "/checkouts"); got.StatusCode != 201 || len(g.adm.asked()) != 3 {
		t.Errorf("another path: %d, the admission was asked %d times", got.StatusCode, len(g.adm.asked()))
	}
}

// A plain route before a guarded one does not take what some backend reads as an order.
func TestPlainRouteInFrontTakesNoOrder(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Routes = append([]Route{{Name: "static", Path: "/static/*", Upstream: "orders"}, {Name: "below", Path: "/orders/*", Upstream: "orders"},
			{Name: "page", Path: "/%C3%A4", Upstream: "orders"}}, c.Routes...)
	})
	for _, target := range []string{"/static/..;/orders", "/static/%252e%252e/orders", `/static\..\orders`, "/static/..%5corders", "/orders/"} {
		g.do("POST "+target+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").wants(t, 400, stock.CodeBadRequest)
	}
	if got := b.requests(); len(got) > 0 {
		t.Fatalf("the backend got %q", got[0].head)
	}
	for _, target := range []string{"/static/a;b", "/static/A%2fb", "/orders/1", "/%C3%A4"} {
		if got := g.do("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != 201 {
			t.Errorf("%s: %d %s", target, got.StatusCode, got.body)
		}
	}
}

func FuzzFoldedIsStable(f *testing.F) {
	f.Add("/a/%2e%2e/b;c\\d//e%00")
	f.Fuzz(func(t *testing.T, path string) {
		once := appendNormal(nil, []byte("/"+path))
		if len(once) == 0 || once[0] != '/' {
			t.Fatalf("normal %q is %q: no leading slash", path, once)
		}
		folded := appendFolded(nil, []byte("/"+path))
		if len(folded) == 0 || folded[0] != '/' || len(folded) > len(path)+1 {
			t.Fatalf("folded %q is %q", path, folded)
		}
	})
}

// A backend may resolve dot segments, only the plain ones, or none of them: none of these may reach it unguarded.
func TestDotSegmentsLeadNowhereNearAGuard(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		guarded := c.Routes[0]
		guarded.Name, guarded.Path = "checkout", "/shop/checkout/*"
		c.Routes = append([]Route{guarded}, c.Routes...)
		c.Routes = append(c.Routes, Route{Name: "everything", Path: "/*", Upstream: "orders"})
	})
	for _, target := range []string{"/shop/checkout/%2e%2e/x", "/shop/checkout/%2e%2e", "/shop/checkout/.%2e/x", "/shop/checkout/..%2fx",
		"/shop/checkout/%2e%2e%2fx", "/shop/checkout/a/%2e%2e/%2e%2e/x", "/shop/checkout/..%5cx", "/shop/checkout/..;/x", "/shop/checkout/../x",
		"/shop/x/../checkout/%2e%2e/%2e%2e/y", "/SHOP/chec%E2%84%AAout/../x", "/orders/../x", "/order%C5%BF/%252e%252e/x", "/order%C5%BF"} {
		g.do("POST "+target+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n").wants(t, 400, stock.CodeBadRequest)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %q", got[0].head)
	}
	for _, target := range []string{"/a/../b", "/checkout/./x", "/%2e%2e/assets/app.js", "/checkout/../shop"} {
		if got := g.do("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); got.StatusCode != 201 {
			t.Errorf("%s has nothing to do with an order: %d %s", target, got.StatusCode, got.body)
		}
	}
}

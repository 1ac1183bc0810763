package gateway

import "testing"

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

package ordercall

import (
	"strings"
	"testing"
	"time"
)

// The value was made with openssl: printf 'v1\n1700000000\nPOST\n/v/r1\nr1\n\n\n%s' "$(printf x | sha256sum | cut -d' ' -f1)" |
// openssl dgst -sha256 -hmac secret.
func TestSignatureOfACall(t *testing.T) {
	t.Parallel()
	sign := NewSigner("k1", []byte("secret"), func() time.Time { return time.Unix(1_700_000_000, 0) })
	if got, want := sign("POST", "/v/r1", "r1", []byte("x")), "t=1700000000,k=k1,v1=3c686abd82f29679d335d1bd9281d1aaad316f3956274841f74c1f4e47e0bbc6"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckNamesTheKey(t *testing.T) {
	t.Parallel()
	f := func(base, path, want string) {
		t.Helper()
		err := Check("orders", "void", base, path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s %s: %v, want %q", base, path, err, want)
		}
	}
	f("http://orders", "/by/{reservation}/void", "")
	f("anything", "", "")
	f("http://orders", "by/{reservation}", "upstreams.orders.void")
	f("http://orders", "/by", "{reservation}")
	f("orders:80", "/{reservation}", "upstreams.orders")
	f("ftp://orders", "/{reservation}", "upstreams.orders.url")
}

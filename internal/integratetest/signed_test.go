package integratetest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// request is an order as a gateway forwards it.
type request struct {
	target, body, reservation, lines, key string
	forwardBy, expires, at                time.Time
	signature                             string // "" = the right one
}

// anOrder is a request that every order service has to accept once.
func anOrder() *request {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	now := time.Now()
	return &request{target: "/orders?ref=mail", body: `{"sku":"sku-1","qty":7,"user":"u1"}`, reservation: hex.EncodeToString(id),
		lines: `"sku-1";q=2`, key: secret, forwardBy: now.Add(time.Minute), expires: now.Add(time.Hour), at: now}
}

// sign gives Stockgate-Signature as docs/http.md describes it.
func (r *request) sign() string {
	sum := sha256.Sum256([]byte(r.body))
	mac := hmac.New(sha256.New, []byte(r.key))
	fmt.Fprintf(mac, "v1\n%d\nPOST\n%s\n%s\n%s\n%d\n%x", r.at.Unix(), r.target, r.reservation, r.lines, r.forwardBy.UnixMilli(), sum)
	return fmt.Sprintf("t=%d,k=%s,v1=%x", r.at.Unix(), keyID, mac.Sum(nil))
}

// answer is what a service said.
type answer struct {
	status  int
	outcome string
	body    string
	order   struct {
		Order, Reservation, State string
		Lines                     []struct {
			SKU      string
			Qty      int64
			Refunded int64
		}
		RefundDue bool `json:"refund_due"`
	}
}

func do(t *testing.T, req *http.Request) *answer {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := &answer{status: resp.StatusCode, outcome: resp.Header.Get("Stockgate-Outcome"), body: strings.TrimSpace(string(body))}
	_ = json.Unmarshal(body, &a.order) // what is no order has none of its fields
	return a
}

// send gives the request to the service at base. after changes what was signed.
func (r *request) send(t *testing.T, base string, after func(*request)) *answer {
	t.Helper()
	sent := *r
	sent.signature = r.sign()
	if after != nil {
		after(&sent)
	}
	req, err := http.NewRequest(http.MethodPost, base+sent.target, strings.NewReader(sent.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-User-Id", shopper)
	req.Header.Set("Stockgate-Reservation", sent.reservation)
	req.Header.Set("Stockgate-Lines", sent.lines)
	req.Header.Set("Stockgate-Forward-By", strconv.FormatInt(sent.forwardBy.UnixMilli(), 10))
	req.Header.Set("Stockgate-Expires", strconv.FormatInt(sent.expires.UnixMilli(), 10))
	if sent.signature != "" {
		req.Header.Set("Stockgate-Signature", sent.signature)
	}
	return do(t, req)
}

// What these tests sign with is what docs/http.md shows.
func TestTheSignatureIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	r := request{target: "/orders?ref=mail", body: `{"sku":"sku-1001","qty":2,"user":"u1"}`, reservation: "7dbfd4965e5ef1d51e52cfdb5567578c",
		lines: `"sku-1001";q=2`, key: secret, forwardBy: time.UnixMilli(1796000001500), at: time.Unix(1796000000, 0)}
	if !strings.Contains(read(t, "docs/http.md"), "Stockgate-Signature: "+r.sign()+"\n") {
		t.Errorf("docs/http.md does not have %s", r.sign())
	}
}

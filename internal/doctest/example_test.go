package doctest

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/orderservice"
)

// signed is the worked example of docs/http.md.
type signed struct {
	text      string // what is signed
	keyID     string
	secret    string
	at        time.Time
	given     string // v1
	request   *http.Request
	body      []byte
	forwardBy time.Time
}

func readSigned(t *testing.T) *signed {
	t.Helper()
	p := readPage(t, "docs/http.md")
	requests := p.blocks("http")
	if len(requests) != 1 {
		t.Fatalf("docs/http.md has %d blocks of http, want 1", len(requests))
	}
	raw := strings.ReplaceAll(strings.TrimSuffix(requests[0].text, "\n"), "\n", "\r\n")
	texts := p.blocks("text")
	s := &signed{text: strings.TrimSuffix(texts[len(texts)-1].text, "\n")}
	key := regexp.MustCompile("Key id `([^`]+)`, secret `([^`]+)`").FindStringSubmatch(p.text)
	if key == nil {
		t.Fatal("docs/http.md does not name the example's key")
	}
	s.keyID, s.secret = key[1], key[2]
	var err error
	if s.request, err = http.ReadRequest(bufio.NewReader(strings.NewReader(raw))); err != nil {
		t.Fatalf("the example is no request: %v", err)
	}
	if s.body, err = io.ReadAll(s.request.Body); err != nil {
		t.Fatalf("the example's Content-Length does not fit its body: %v", err)
	}
	m := regexp.MustCompile(`^t=(\d+),k=([^,]+),v1=([0-9a-f]{64})$`).FindStringSubmatch(s.request.Header.Get("Stockgate-Signature"))
	if m == nil || m[2] != s.keyID {
		t.Fatalf("signature %q", s.request.Header.Get("Stockgate-Signature"))
	}
	unix, _ := strconv.ParseInt(m[1], 10, 64)
	s.at, s.given = time.Unix(unix, 0), m[3]
	ms, err := strconv.ParseInt(s.request.Header.Get("Stockgate-Forward-By"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s.forwardBy = time.UnixMilli(ms)
	return s
}

// The worked signature is what the description gives.
func TestTheSignatureExampleIsRight(t *testing.T) {
	t.Parallel()
	s := readSigned(t)
	sum := sha256.Sum256(s.body)
	r := s.request
	text := strings.Join([]string{"v1", strconv.FormatInt(s.at.Unix(), 10), r.Method, r.RequestURI, r.Header.Get("Stockgate-Reservation"),
		r.Header.Get("Stockgate-Lines"), r.Header.Get("Stockgate-Forward-By"), hex.EncodeToString(sum[:])}, "\n")
	if text != s.text {
		t.Errorf("the signed text is\n%s\ndocs/http.md says\n%s", text, s.text)
	}
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write([]byte(text))
	if got := hex.EncodeToString(mac.Sum(nil)); got != s.given {
		t.Errorf("v1 is %s, docs/http.md says %s", got, s.given)
	}
}

// The sample order service takes the example, and nothing that differs from it.
func TestTheSampleOrderServiceTakesTheExample(t *testing.T) {
	t.Parallel()
	s := readSigned(t)
	f := func(change func(*http.Request), now time.Time, want int) {
		t.Helper()
		service := orderservice.New(orderservice.Config{Keys: map[string][]byte{s.keyID: []byte(s.secret)}, Now: func() time.Time { return now }})
		r := httptest.NewRequest(s.request.Method, s.request.RequestURI, strings.NewReader(string(s.body)))
		r.Header = s.request.Header.Clone()
		change(r)
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	f(func(*http.Request) {}, s.at, http.StatusCreated)
	f(func(r *http.Request) { r.Header.Set("Stockgate-Lines", `"sku-1001";q=3`) }, s.at, http.StatusUnauthorized)
	f(func(*http.Request) {}, s.forwardBy.Add(time.Millisecond), http.StatusGone)
}

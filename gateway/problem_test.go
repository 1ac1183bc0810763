package gateway

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockgate/stockgate/stock"
)

// TestAnswersFollowTheTable: status and Retry-After of every code, as DESIGN.md section 13 has them.
func TestAnswersFollowTheTable(t *testing.T) {
	t.Parallel()
	const never, yes = false, true
	f := func(status int, retry bool, codes ...stock.Code) {
		t.Helper()
		for _, code := range codes {
			var resp fasthttp.Response
			(&problem{code: code, retryAfter: 3 * time.Second}).write(&resp, true)
			if resp.StatusCode() != status {
				t.Errorf("%s is %d, want %d", code, resp.StatusCode(), status)
			}
			if after := resp.Header.Peek("Retry-After"); (len(after) > 0) != retry {
				t.Errorf("%s has Retry-After %q, want one: %v", code, after, retry)
			}
			var body map[string]any
			if err := json.Unmarshal(resp.Body(), &body); err != nil {
				t.Fatalf("%s: %v in %s", code, err, resp.Body())
			}
			if body["code"] != string(code) || body["status"] != float64(status) || body["type"] != ProblemURI+strings.ToLower(string(code)) ||
				body["title"] == "" {
				t.Errorf("%s has body %s", code, resp.Body())
			}
		}
	}
	f(409, never, stock.CodeSoldOut, stock.CodePurchaseLimit, stock.CodeReleased)
	f(409, yes, stock.CodeInFlight)
	f(422, never, stock.CodeKeyReused)
	f(400, never, stock.CodeBadRequest)
	f(404, never, stock.CodeUnknownSKU, stock.CodeUnknownReservation, stock.CodeNoRoute)
	f(403, yes, stock.CodeNotStarted)
	f(403, never, stock.CodeEnded)
	f(405, never, stock.CodeMethodNotAllowed)
	f(401, never, stock.CodeUnauthorized)
	f(429, yes, stock.CodeRateLimited, stock.CodeSKULimited)
	f(503, yes, stock.CodeQueueFull, stock.CodeQueueTimeout, stock.CodePaused, stock.CodeNotLoaded, stock.CodeUnavailable, stock.CodeCorruptStock)
	f(502, yes, stock.CodeBackendFailed)
	f(504, yes, stock.CodeOutcomeUnknown)
	f(413, never, stock.CodeBodyTooLarge)
	f(431, never, stock.CodeHeadersTooLarge)
	f(415, never, stock.CodeUnsupportedEncoded)
	f(408, never, stock.CodeRequestTimeout)
	f(417, never, stock.CodeExpectationFailed)
	f(500, never, stock.CodeInternal)
	if len(answers) != 29 {
		t.Errorf("%d codes have an answer, the table above has 29", len(answers))
	}
}

func TestUnknownCodeIsInternal(t *testing.T) {
	t.Parallel()
	var resp fasthttp.Response
	(&problem{code: "NEW_CODE"}).write(&resp, false)
	if resp.StatusCode() != 500 || !strings.Contains(string(resp.Body()), `"code":"INTERNAL"`) || len(resp.Header.Peek("X-Envoy-Ratelimited")) > 0 {
		t.Errorf("answer is %s %s", &resp.Header, resp.Body())
	}
}

// TestRetryAfterIsSpread: those refused together do not come back together, and nobody before the wait is over.
func TestRetryAfterIsSpread(t *testing.T) {
	t.Parallel()
	seen := map[int64]bool{}
	for range 200 {
		p := &problem{retryAfter: 10 * time.Second}
		s := p.retrySeconds(waitJitter)
		if s < 10 || s > 16 {
			t.Fatalf("Retry-After %d, want 10 to 16", s)
		}
		seen[s] = true
	}
	if len(seen) < 3 {
		t.Errorf("200 clients got only %d different waits", len(seen))
	}
	f := func(want int64, wait time.Duration, spread bool, w waits) {
		t.Helper()
		if got := (&problem{retryAfter: wait, spread: spread}).retrySeconds(w); got != want {
			t.Errorf("wait %v gives %d, want %d", wait, got, want)
		}
	}
	f(1, time.Millisecond, true, waitJitter)
	f(3, 2001*time.Millisecond, true, waitJitter)
	f(1, 0, false, waitPlain)
	f(0, 0, false, waitGiven)
	f(0, time.Hour, false, waitNever)
}

func TestProblemTextIsValidJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"plain", `quote " and \`, "control \x00\x1f\x7f", "bad \xff\xfe utf-8", "<script>&", "ünï \u2028 😀"} {
		p := &problem{code: stock.CodeBadRequest, detail: text, field: "f", limit: "l", value: text, upstreamStatus: 503}
		var got struct {
			Detail, Field, Limit, Value string
			Status                      int `json:"upstream_status"`
		}
		body := appendProblem(nil, answerFor(p.code), p)
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		want := strings.ToValidUTF8(text, "\uFFFD")
		if text == "bad \xff\xfe utf-8" {
			want = "bad \uFFFD\uFFFD utf-8"
		}
		if got.Detail != want || got.Value != want || got.Field != "f" || got.Limit != "l" || got.Status != 503 {
			t.Errorf("%q came back as %+v", text, got)
		}
	}
	if s := shown([]byte(strings.Repeat("x", 1000))); len(s) > 60 {
		t.Errorf("a long value is shown with %d bytes", len(s))
	}
}

// TestEveryCodeIsDocumented: a type URI leads to a heading of problems.md.
func TestEveryCodeIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("problems.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, a := range answers {
		heading := "\n## " + string(code) + "\n\n" + strconv.Itoa(a.status) + " "
		if !strings.Contains(string(text), heading) {
			t.Errorf("problems.md has no heading %q", heading)
		}
	}
}

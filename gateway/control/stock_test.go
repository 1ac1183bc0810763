package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestStockIsSetSeenAdjustedAndPaused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.refused(stock.CodeUnknownSKU, "sku-1", "GET", "/v1/stock/sku-1", "")
	b.ok(`{"sku":"sku-1","available":100,"granted":0,"paused":false,"ver":1,"epoch":7}`,
		"PUT", "/v1/stock/sku-1", `{"available":100,"reason":"opening"}`)
	b.ok(`{"sku":"sku-1","available":105,"granted":0,"paused":false,"ver":2,"epoch":7,"op":"o1"}`,
		"POST", "/v1/stock/sku-1/adjust", `{"delta":5,"op":"o1"}`)
	b.ok(`{"sku":"sku-1","available":105,"granted":0,"paused":true,"ver":3,"epoch":7}`, "POST", "/v1/stock/sku-1/pause", "")
	b.ok(`{"sku":"sku-1","available":105,"granted":0,"paused":false,"ver":4,"epoch":7}`, "POST", "/v1/stock/sku-1/resume", `{"reason":"again"}`)
	b.ok(`{"sku":"sku-1","available":105,"granted":0,"paused":false,"ver":5,"epoch":7}`, "POST", "/v1/stock/sku-1/sync", `{}`)
	b.ok(`{"sku":"sku-1","available":105,"granted":0,"paused":false,"ver":5,"epoch":7,"held":0,"confirmed":0,"compensating":0,"stock_in":105,"consistency":"strong",`+
		`"redis":{"loaded":true,"base":9,"rest":1,"out":2,"free":7,"ver":3,"epoch":7,"paused":false}}`, "GET", "/v1/stock/sku-1", "")
	if got := b.executed()[0]; got.Reason != "opening" || got.Actor != "loopback" || got.Class != stock.ClassPrededuct || got.Deadline.IsZero() {
		t.Fatalf("the op was %+v", got)
	}
}

func TestAnAdjustmentRepeatedUnderItsOpChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.do("PUT", "/v1/stock/a", `{"available":1}`)
	for range 3 {
		b.ok(`{"sku":"a","available":4,"granted":0,"paused":false,"ver":2,"epoch":7,"op":"o1"}`, "POST", "/v1/stock/a/adjust", `{"delta":3,"op":"o1"}`)
	}
}

func TestAnAdjustmentBelowZeroIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.do("PUT", "/v1/stock/a", `{"available":2}`)
	b.refused(stock.CodeSoldOut, "less than 3", "POST", "/v1/stock/a/adjust", `{"delta":-3,"op":"o1"}`)
	b.ok(`{"sku":"a","available":0,"granted":0,"paused":false,"ver":2,"epoch":7,"op":"o2"}`, "POST", "/v1/stock/a/adjust", `{"delta":-2,"op":"o2"}`)
}

func TestC008_OddQuantitiesAreRefusedBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	odd := []string{`1.5`, `0.1`, `"3"`, `"3abc"`, `1e3`, `1e0`, `true`, `null`, `[1]`, `{}`, `9007199254740993`, `9223372036854775807`,
		`9223372036854775808`, `18446744073709551616`, `1e400`, `NaN`, `0100`, `+1`, `-`, `0x10`, `1_000`, ``}
	for _, v := range odd {
		b.refused(stock.CodeBadRequest, "", "PUT", "/v1/stock/a", `{"available":`+v+`}`)
		b.refused(stock.CodeBadRequest, "", "POST", "/v1/stock/a/adjust", `{"op":"o","delta":`+v+`}`)
	}
	b.refused(stock.CodeBadRequest, "available is -1, must be a whole number from 0 to 9007199254740992", "PUT", "/v1/stock/a", `{"available":-1}`)
	b.refused(stock.CodeBadRequest, `available is "3", must be`, "PUT", "/v1/stock/a", `{"available":"3"}`)
	b.refused(stock.CodeBadRequest, "available is 1.5, must be", "PUT", "/v1/stock/a", `{"available":1.5}`)
	b.refused(stock.CodeBadRequest, "delta is 0", "POST", "/v1/stock/a/adjust", `{"op":"o","delta":0}`)
	b.refused(stock.CodeBadRequest, "delta is -9007199254740993", "POST", "/v1/stock/a/adjust", `{"op":"o","delta":-9007199254740993}`)
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
	for _, v := range []string{"0", "9007199254740992"} {
		if got := b.do("PUT", "/v1/stock/a", `{"available":`+v+`}`); got.status != 200 || !strings.Contains(got.body, `"available":`+v+",") {
			t.Errorf("%s: %d %s", v, got.status, got.body)
		}
	}
}

func TestBodiesAreReadStrictly(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.BodyBytes = 1024 })
	f := func(part, body string) {
		t.Helper()
		b.refused(stock.CodeBadRequest, part, "PUT", "/v1/stock/a", body)
	}
	f("available is absent", ``)
	f("available is absent", `{}`)
	f("available is there twice", `{"available":1,"available":2}`)
	f(`field is "Available"`, `{"Available":1}`)
	f(`field is "count", known are available, op, reason`, `{"count":1}`)
	f("reason is an object", `{"available":1,"reason":{"a":1}}`)
	f("reason is 5, must be a string", `{"available":1,"reason":5}`)
	f("without control characters", `{"available":1,"reason":"a\u0000b"}`)
	f("at most 255 bytes", `{"available":1,"reason":"`+strings.Repeat("x", 256)+`"}`)
	f("something follows", `{"available":1}{"available":2}`)
	f("no JSON object", `[1]`)
	f("no JSON object", `5`)
	f("ends too early", `{"available":1`)
	f("not JSON", `{"available" 1}`)
	f("not valid UTF-8", "{\"available\":1,\"reason\":\"\xff\"}")
	f("an array", `{"reason":`+strings.Repeat("[", 500))
	p := b.refused(stock.CodeBodyTooLarge, "", "PUT", "/v1/stock/a", `{"available":1}`+strings.Repeat(" ", 1024))
	if p.Limit != "control.body" || p.Value != "1024 bytes" {
		t.Errorf("limit %q = %q", p.Limit, p.Value)
	}
	b.refused(stock.CodeUnsupportedEncoded, "gzip", "PUT", "/v1/stock/a", `x`, "Content-Encoding", "gzip")
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
}

func TestAnOpIdMustBeGivenAndPlain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, op := range []string{`""`, `"a b"`, `"é"`, `"#1"`, `5`, `"` + strings.Repeat("x", 129) + `"`} {
		b.refused(stock.CodeBadRequest, "op is ", "POST", "/v1/stock/a/adjust", `{"delta":1,"op":`+op+`}`)
	}
	b.refused(stock.CodeBadRequest, `op is ""`, "POST", "/v1/stock/a/adjust", `{"delta":1}`)
	b.refused(stock.CodeBadRequest, `op is "#1"`, "PUT", "/v1/stock/a", `{"available":1,"op":"#1"}`)
	b.refused(stock.CodeBadRequest, `op is ""`, "POST", "/v1/stock/import?op=", "a,1")
	b.refused(stock.CodeBadRequest, "op is there twice", "POST", "/v1/stock/import?op=a&op=b", "a,1")
}

// An op id that is misspelled or stands in the wrong place must not be passed over: the caller would think a repeat safe.
func TestWhatStandsInTheQueryOfAChangeIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const unknown = "query parameter is"
	b.refused(stock.CodeBadRequest, unknown+` "ops", known are op`, "POST", "/v1/stock/import?ops=a", "a,1")
	b.refused(stock.CodeBadRequest, "the query cannot be read", "POST", "/v1/stock/import?op=%zz", "a,1")
	b.refused(stock.CodeBadRequest, "the query cannot be read", "POST", "/v1/stock/import?op=a;b", "a,1")
	b.refused(stock.CodeBadRequest, unknown+` "op", known are none`, "PUT", "/v1/stock/a?op=a", `{"available":1}`)
	b.refused(stock.CodeBadRequest, unknown, "POST", "/v1/stock/a/adjust?reason=x", `{"delta":1,"op":"a"}`)
	b.refused(stock.CodeBadRequest, unknown, "POST", "/v1/stock/a/pause?reason=x", "")
	b.refused(stock.CodeBadRequest, unknown, "POST", "/v1/reservations?key=a", `{"sku":"a"}`)
	b.refused(stock.CodeBadRequest, unknown, "POST", "/v1/reservations/"+reservationID+"/release?op=a", `{}`)
	if got := b.executed(); len(got) != 0 {
		t.Fatalf("%d ops were executed", len(got))
	}
}

// Whoever named no op learns under which one the change is repeated: without it a repeat would put back for sale what was sold since.
func TestARefusalThatMayBeRepeatedNamesItsOp(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var op string
	b.breaks(func(o *stock.Op) error {
		op = o.OpID
		return stock.ErrUnknown
	})
	for _, call := range [][3]string{{"PUT", "/v1/stock/a", `{"available":4}`}, {"PUT", "/v1/stock/a", `{"available":4,"op":"mine"}`},
		{"POST", "/v1/stock/a/adjust", `{"delta":4,"op":"mine"}`}, {"POST", "/v1/stock/import", "a,4"}, {"POST", "/v1/stock/import?op=mine", "a,4"}} {
		p := b.refused(stock.CodeOutcomeUnknown, "with", call[0], call[1], call[2])
		if p.Op == "" || p.Op != op || strings.Contains(call[1]+call[2], "mine") != (op == "mine") {
			t.Errorf("%v: the refusal names op %q, the ledger was given %q", call, p.Op, op)
		}
	}
}

// C012: a SKU reaches Redis as part of a key, so what is not of its alphabet goes no further than the path.
func TestC012_TheSKUIsDecodedThenChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, path := range []string{"a%7Db", "%7Ba%7D", "a%2Fb", "a%20b", "a%00", "%C3%A9", strings.Repeat("x", 129)} {
		b.refused(stock.CodeBadRequest, "sku has", "PUT", "/v1/stock/"+path, `{"available":1}`)
	}
	for path, sku := range map[string]string{"sku%2D1": "sku-1", "a:b": "a:b", "a%3Ab": "a:b", "%2E%2E": "..", "import": "import"} {
		got := b.do("PUT", "/v1/stock/"+path, `{"available":1}`)
		if got.status != 200 || !strings.Contains(got.body, `"sku":"`+sku+`"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestTheListIsPagedBySKUBytes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.ok(`{"skus":[]}`, "GET", "/v1/stock", "")
	for _, sku := range []string{"b", "a", "B", "c"} {
		b.do("PUT", "/v1/stock/"+sku, `{"available":1}`)
	}
	f := func(query string, want ...string) {
		t.Helper()
		got := b.do("GET", "/v1/stock"+query, "")
		var seen []string
		for _, part := range strings.Split(got.body, `{"sku":"`)[1:] {
			seen = append(seen, part[:strings.Index(part, `"`)])
		}
		_, next, _ := strings.Cut(got.body, `"next":`)
		if got := strings.Join(append(seen, "next="+strings.Trim(next, `"}`)), " "); got != strings.Join(want, " ") {
			t.Errorf("%s: %s, want %v", query, got, want)
		}
	}
	f("?limit=3", "B", "a", "b", "next=b")
	f("?limit=3&after=b", "c", "next=")
	f("?after=a&limit=1000", "b", "c", "next=")
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?limit=1&limit=2", "?after=a%00b", "?sort=x"} {
		b.refused(stock.CodeBadRequest, "", "GET", "/v1/stock"+query, "")
	}
}

// Facts are told after the commit and only then.
func TestFactsAreToldAfterACommitOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.do("PUT", "/v1/stock/a", `{"available":3}`)
	b.do("POST", "/v1/stock/a/adjust", `{"delta":-9,"op":"x"}`)
	b.breaks(func(*stock.Op) error { return stock.ErrUnknown })
	b.do("PUT", "/v1/stock/a", `{"available":4}`)
	if want := (stock.Fact{SKU: "a", Available: 3, Epoch: 7, Ver: 1}); len(b.published) != 1 || !reflect.DeepEqual(b.published[0], want) {
		t.Fatalf("published %+v", b.published)
	}
}

func TestWithoutRedisStockIsChangedAndShownAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *Config, deps *Deps) { deps.Cache = nil })
	const change = `{"sku":"a","available":3,"granted":0,"paused":false,"ver":1,"epoch":7`
	b.ok(change+`}`, "PUT", "/v1/stock/a", `{"available":3}`)
	b.ok(change+`,"held":0,"confirmed":0,"compensating":0,"stock_in":3,"consistency":"strong"}`, "GET", "/v1/stock/a", "")
}

// A Redis that hangs until the caller gives up must not take the database's figures with it.
func TestC090_AHangingRedisOnlyLeavesItsFiguresOut(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.RedisTimeout = time.Millisecond })
	b.registers = func(ctx context.Context) ([]stock.Registers, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.do("PUT", "/v1/stock/a", `{"available":3}`)
	for _, path := range []string{"/v1/stock/a", "/v1/stock"} {
		if got := b.do("GET", path, ""); got.status != 200 || strings.Contains(got.body, "redis") || !strings.Contains(got.body, `"available":3`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

func TestRegistersThatCannotBeReadAreShownAsCorrupt(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.registers = func(context.Context) ([]stock.Registers, error) {
		return []stock.Registers{{SKU: "other"}, {SKU: "a", Loaded: true, Base: -1, Rest: -1, Out: -1}}, nil
	}
	b.do("PUT", "/v1/stock/a", `{"available":3}`)
	if got := b.do("GET", "/v1/stock/a", ""); !strings.Contains(got.body, `"loaded":true,"corrupt":true,"base":0`) {
		t.Fatal(got.body)
	}
}

func TestC039_WhatSurelyDidNotHappenAndWhatMayHaveStayApart(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	f := func(err error, code stock.Code, part string) {
		t.Helper()
		b.breaks(func(*stock.Op) error { return err })
		p := b.refused(code, part, "PUT", "/v1/stock/a", `{"available":3}`)
		var limit *stock.LimitError
		if errors.As(err, &limit) && (p.Limit != limit.Limit || p.Value != limit.Value) {
			t.Errorf("%v: limit %q = %q", err, p.Limit, p.Value)
		}
	}
	f(stock.ErrUnavailable, stock.CodeUnavailable, "nothing was changed")
	f(stock.ErrLate, stock.CodeUnavailable, "nothing was changed")
	f(stock.ErrNotExecuted, stock.CodeUnavailable, "nothing was changed")
	f(&stock.LimitError{Code: stock.CodeQueueFull, Limit: "fallback.queue.per_sku", Value: "5000"}, stock.CodeQueueFull, "fallback.queue.per_sku = 5000")
	f(&stock.LimitError{Code: stock.CodeQueueTimeout, Limit: "fallback.queue.max_wait", Value: "2s"}, stock.CodeQueueTimeout, "2s")
	f(fmt.Errorf("commit: %w", stock.ErrUnknown), stock.CodeOutcomeUnknown, "make the same call again")
	f(errors.New("something new"), stock.CodeOutcomeUnknown, "make the same call again")

	b.readFault = errors.New("connection refused")
	b.refused(stock.CodeUnavailable, "connection refused", "GET", "/v1/stock/a", "")
	b.refused(stock.CodeUnavailable, "connection refused", "GET", "/v1/stock", "")
}

// After an unknown the op still belongs to the deducter, which goes on writing to it: the race detector sees whoever reads it.
func TestAnOpIsNotTouchedAfterItsOutcomeBecameUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	written := make(chan struct{})
	b.breaks(func(op *stock.Op) error {
		go func() {
			defer close(written)
			op.Result.Verdict = stock.VerdictDone
		}()
		return stock.ErrUnknown
	})
	b.refused(stock.CodeOutcomeUnknown, "", "PUT", "/v1/stock/a", `{"available":3}`)
	<-written
}

func TestVerdictsHaveTheirCodes(t *testing.T) {
	t.Parallel()
	f := func(v stock.Verdict, want stock.Code) {
		t.Helper()
		err := ofStockVerdict(&stock.Op{Kind: stock.OpAdjust, SKU: "a", Delta: -1, Result: stock.Result{Verdict: v}})
		if v == stock.VerdictDone {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if p := ofChange(err); p.Code != string(want) || p.Status != kinds[want].status {
			t.Errorf("%s: %+v, want %s", v, p, want)
		}
	}
	f(stock.VerdictDone, "")
	f(stock.VerdictUnknownSKU, stock.CodeUnknownSKU)
	f(stock.VerdictShort, stock.CodeSoldOut)
	f(stock.VerdictCorrupt, stock.CodeCorruptStock)
	f(stock.VerdictKeyReused, stock.CodeKeyReused)
	f(stock.VerdictNone, stock.CodeInternal)
}

func TestEveryKindOfProblemHasAStatusAndATitle(t *testing.T) {
	t.Parallel()
	for code, k := range kinds {
		if http.StatusText(k.status) == "" || k.title == "" {
			t.Errorf("%s: %+v", code, k)
		}
	}
	if p := refuse("NEW", "x"); p.Status != 500 {
		t.Errorf("an unknown code has status %d", p.Status)
	}
}

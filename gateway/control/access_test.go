package control

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

func TestOnlyTheTokenMayChangeAndTheReadTokenMayLook(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.Listen, cfg.Token, cfg.ReadToken = ":9090", "all", "some" })
	b.skus["a"] = &ledger.SKUInfo{Fact: stock.Fact{SKU: "a"}}
	f := func(authorization string, look, change int) {
		t.Helper()
		get := b.do("GET", "/v1/stock/a", "", "Authorization", authorization)
		put := b.do("PUT", "/v1/stock/a", `{"available":1}`, "Authorization", authorization)
		if get.status != look || put.status != change {
			t.Errorf("%q: look %d, change %d, want %d and %d", authorization, get.status, put.status, look, change)
		}
		if (get.header.Get("WWW-Authenticate") == "") == (look == 401) {
			t.Errorf("%q: WWW-Authenticate %q", authorization, get.header.Get("WWW-Authenticate"))
		}
	}
	f("Bearer all", 200, 200)
	f("bearer all", 200, 200)
	f("Bearer some", 200, 401)
	f("Bearer al", 401, 401)
	f("Bearer all2", 401, 401)
	f("Bearer", 401, 401)
	f("Bearer ", 401, 401)
	f("Basic all", 401, 401)
	f("", 401, 401)
	if got := b.executed(); len(got) != 2 || got[0].Actor != "control.token" {
		t.Fatalf("%d ops, %+v", len(got), got)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/ui/": 200, "/v1/status": 401} {
		if got := b.do("GET", path, ""); got.status != want {
			t.Errorf("%s without a token: %d, want %d", path, got.status, want)
		}
	}
}

// Which of two tokens or actors counts would depend on who reads them.
func TestTwoTokensAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.Token, cfg.ReadToken = "all", "some" })
	b.refused(stock.CodeUnauthorized, "there twice", "PUT", "/v1/stock/a", `{"available":1}`, "Authorization", "Bearer all", "Authorization", "Bearer all")
	b.refused(stock.CodeUnauthorized, "there twice", "GET", "/v1/status", "", "Authorization", "Bearer some", "Authorization", "Bearer x")
	b.refused(stock.CodeBadRequest, "there twice", "PUT", "/v1/stock/a", `{"available":1}`, "Authorization", "Bearer all",
		ActorHeader, "a", ActorHeader, "b")
	b.refused(stock.CodeUnauthorized, "may look but not change", "PUT", "/v1/stock/a", `{"available":1}`, "Authorization", "Bearer some")
	if got := b.executed(); len(got) > 0 {
		t.Errorf("%d ops were executed", len(got))
	}
}

func TestAnEmptyReadTokenOpensNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *Config, _ *Deps) { cfg.Token = "all" })
	for _, authorization := range []string{"Bearer ", "Bearer", ""} {
		b.refused(stock.CodeUnauthorized, "", "GET", "/v1/stock", "", "Authorization", authorization)
	}
}

// A page in the operator's browser can reach a loopback listener: by a form, or by a DNS name that suddenly points to 127.0.0.1.
func TestWithoutATokenWebPagesStayOut(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	host := strings.TrimPrefix(b.http.URL, "http://")
	f := func(want int, headers ...string) {
		t.Helper()
		if got := b.do("PUT", "/v1/stock/a", `{"available":1}`, headers...); got.status != want {
			t.Errorf("%v: %d %s, want %d", headers, got.status, got.body, want)
		}
	}
	f(200)
	f(200, "Host", "localhost:9090")
	f(200, "Host", "[::1]:9090")
	f(200, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin")
	f(401, "Host", "evil.example:9090")
	f(401, "Host", "127.0.0.1.evil.example")
	f(401, "Host", "192.0.2.1")
	f(401, "Sec-Fetch-Site", "cross-site")
	f(401, "Origin", "http://evil.example")
	b.refused(stock.CodeUnauthorized, "loopback host", "GET", "/v1/stock", "", "Host", "evil.example")
}

func TestConfigsThatWouldOpenTheAPIAreRefused(t *testing.T) {
	t.Parallel()
	f := func(cfg Config, want string) {
		t.Helper()
		err := cfg.WithDefaults().Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	f(Config{}, "")
	f(Config{Listen: "localhost:9090"}, "")
	f(Config{Listen: "[::1]:9090"}, "")
	f(Config{Listen: "127.8.8.8:9090"}, "")
	f(Config{Listen: ":9090", Token: "t"}, "")
	f(Config{Listen: ":9090"}, "control.token is empty")
	f(Config{Listen: "0.0.0.0:9090"}, "control.token is empty")
	f(Config{Listen: "[::]:9090"}, "control.token is empty")
	f(Config{Listen: "10.0.0.1:9090"}, "control.token is empty")
	f(Config{Listen: "localhost.evil.example:9090"}, "control.token is empty")
	f(Config{Listen: "9090", Token: "t"}, "control.listen")
	f(Config{ReadToken: "t"}, "control.read_token is set")
	f(Config{Token: "t", ReadToken: "t"}, "the same as control.token")
	f(Config{Timeout: -1, MaxInFlight: -1}, "control.max_in_flight is -1")
	f(Config{Timeout: -1, MaxInFlight: -1}, "control.timeout is -1")
}

// Every change that was asked for stands in the log once, taken or refused, with who asked, for what and what came of it.
func TestEveryChangeIsInTheLogOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	b := setup(t, func(cfg *Config, deps *Deps) { cfg.Token, cfg.ReadToken, deps.Log = "t0k", "r", zap.New(core) })
	b.place(nil)
	f := func(want string, call ...string) {
		t.Helper()
		b.do(call[0], call[1], call[2], "Authorization", "Bearer "+call[3], "Stockgate-Actor", "ann")
		var got []string
		for _, e := range logs.TakeAll() {
			m := e.ContextMap()
			got = append(got, fmt.Sprint(e.Level, " ", m["actor"], " ", m["call"], " ", m["target"], " ", m["outcome"]))
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%v: logged %q, want %q", call, got, want)
		}
	}
	f("info ann PUT /v1/stock/{sku} a done", "PUT", "/v1/stock/a", `{"available":1}`, "t0k")
	f("info ann PUT /v1/stock/{sku} a BAD_REQUEST", "PUT", "/v1/stock/a", `{"available":-1}`, "t0k")
	f("info  PUT /v1/stock/{sku} a UNAUTHORIZED", "PUT", "/v1/stock/a", `{"available":1}`, "r")
	f("info ann POST /v1/reservations/{id}/confirm "+reservationID+" done", "POST", reservationPath+"/confirm", "", "t0k")
	f("info ann POST /v1/stock/import i-1 done", "POST", "/v1/stock/import?op=i-1", "a,1\n", "t0k")
	f("", "GET", "/v1/stock/a", "", "r")
}

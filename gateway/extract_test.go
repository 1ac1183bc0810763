package gateway

import (
	"strings"
	"testing"

	"github.com/stockgate/stockgate/stock"
)

// TestC008_OddQuantities: none of them may reach the admission, and none the backend.
func TestC008_OddQuantities(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	f := func(qty, says string) {
		t.Helper()
		got := g.do(orderOf(`{"sku":"sku-1001","user":"u1","qty":` + qty + `}`))
		got.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(got.body, says) {
			t.Errorf("qty %s: the answer %s does not say %s", qty, got.body, says)
		}
	}
	const bound = `"field":"qty","limit":"max_qty","value":"100"`
	for _, qty := range []string{"-1", "0", "1.5", "0.1", `"3"`, `"3abc"`, "1e3", "1e0", "1.0", "true", "null", "[1]", "{}", `""`, "101",
		"2147483648", "4294967297", "9223372036854775807", "9223372036854775808", "18446744073709551617"} {
		f(qty, bound)
	}
	for _, qty := range []string{"NaN", "nan", "inf", "-Infinity", "+1", "01", "0x1", "1-2", "", "1 2", "--1"} {
		f(qty, "not JSON")
	}
	if asked := g.adm.asked(); len(asked) > 0 {
		t.Errorf("the admission was asked: %+v", asked)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %d requests", len(got))
	}
}

func TestAbsentQuantityIsOne(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	if got := g.do(orderOf(`{"sku":"sku-1001","user":"u1"}`)); got.StatusCode != 201 {
		t.Fatalf("answer is %d %s", got.StatusCode, got.body)
	}
	asked := g.adm.asked()
	if len(asked) != 1 || asked[0].Lines[0] != (stock.Line{SKU: "sku-1001", Qty: 1}) || asked[0].User != "u1" || asked[0].RequestID != "" {
		t.Errorf("the admission was asked %+v", asked)
	}
}

func TestAmbiguousBodiesAreRefused(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	f := func(body, says string) {
		t.Helper()
		got := g.do(orderOf(body))
		got.wants(t, 400, stock.CodeBadRequest)
		if !strings.Contains(got.body, says) {
			t.Errorf("body %s: the answer %s does not say %s", body, got.body, says)
		}
	}
	f(`{"sku":"a","sku":"b","user":"u"}`, "body.sku is there twice")
	f(`{"sku":"a","SKU":"b","user":"u"}`, "another case")
	f(`{"SKU":"b","user":"u"}`, "another case")
	f(`{"sku":"a","qty":1,"Qty":5,"user":"u"}`, "body.qty is there twice, or in another case")
	f(`{"sku":"a","s\u006bu":"b","user":"u"}`, "body.sku is there twice")
	f(`{"user":"u"}`, "sku is missing; it was looked for in body.sku")
	f(`{"sku":"a"}`, "user is missing; it was looked for in header.X-User-Id, body.user")
	f(`{"sku":1001,"user":"u"}`, "sku (body.sku) is 1001")
	f(`{"sku":null,"user":"u"}`, "sku (body.sku) is null")
	f(`{"sku":"a b","user":"u"}`, "byte 2")
	f(`{"sku":"","user":"u"}`, "0 bytes")
	f(`{"sku":"`+strings.Repeat("x", 129)+`","user":"u"}`, "129 bytes")
	f(`{"sku":"a","user":""}`, "user (body.user)")
	f(`{"sku":"a","user":1.5}`, "user (body.user) is 1.5")
	f(`{"sku":"a","user":"u\u0000"}`, "user (body.user)")
	f(`{"sku":"a","user":"`+strings.Repeat("x", 256)+`"}`, "1 to 255")
	f(`[{"sku":"a"}]`, "must be an object")
	f(`{"sku":"a","user":"u"} {}`, "not JSON")
	f(`{"sku":"a","user":"u",}`, "not JSON")
	f("{\"sku\":\"a\",\"user\":\"u\n\"}", "not JSON")
	f("{\"sku\":\"a\",\"user\":\"u\",\"a\nb\":1}", "not JSON")
	f(`{"sku":"a","user":"\ud800"}`, "half a UTF-16 pair")
	f(`{"sku":"a","user":"\udc00\ud800"}`, "half a UTF-16 pair")
	f("{\"sku\":\"a\",\"user\":\"\xff\"}", "not UTF-8")
	f("\xef\xbb\xbf"+`{"sku":"a","user":"u"}`, "not JSON")
	f(`{"sku":"a","user":"u","x":`+strings.Repeat("[", 65)+strings.Repeat("]", 65)+`}`, "nested more than 64 deep")
	f(strings.Repeat("[", 100_000), "nested more than 64 deep")
	if asked := g.adm.asked(); len(asked) > 0 {
		t.Errorf("the admission was asked: %+v", asked)
	}
}

// TestC007_LargeUserNumbersStayExact: a user that is a JSON number keeps every digit.
func TestC007_LargeUserNumbersStayExact(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, user := range []string{"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775806"} {
		if got := g.do(orderOf(`{"sku":"a","user":` + user + `}`)); got.StatusCode != 201 {
			t.Fatalf("user %s: %d %s", user, got.StatusCode, got.body)
		}
		asked := g.adm.asked()
		if last := asked[len(asked)-1]; last.User != user {
			t.Errorf("user is %q, want %q", last.User, user)
		}
	}
}

func TestSourcesMustAgree(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do(orderOf(`{"sku":"a","user":"u2"}`, "X-User-Id: u1\r\n")).wants(t, 400, stock.CodeBadRequest)
	if got := g.do(orderOf(`{"sku":"a","user":"u1"}`, "X-User-Id: u1\r\n")); got.StatusCode != 201 {
		t.Errorf("agreeing sources: %d %s", got.StatusCode, got.body)
	}
	if got := g.do(orderOf(`{"sku":"a"}`, "x-user-id: u1\r\n")); got.StatusCode != 201 {
		t.Errorf("only the first source, in lower case: %d %s", got.StatusCode, got.body)
	}
}

// TestC071_IdentityIsNeverAmbiguous: twice, with an underscore, or taken away from the backend by Connection.
func TestC071_IdentityIsNeverAmbiguous(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, headers := range []string{
		"X-User-Id: u1\r\nX-User-Id: u2\r\n",
		"X-User-Id: u1\r\nx-user-id: u1\r\n",
		"X-User-Id: u1\r\nX_User_Id: u2\r\n",
		"X_User_Id: u2\r\n",
		"X-User-Id: \r\n",
		"X-User-Id: u1\r\nConnection: keep-alive, X-User-Id\r\n",
		"X-User-Id: u1\r\nConnection: x_user_id\r\n",
		"X-User-Id : u1\r\n",
		"X-User Id: u1\r\n",
	} {
		g.do(orderOf(`{"sku":"a"}`, headers)).wants(t, 400, stock.CodeBadRequest)
	}
	if got := b.requests(); len(got) > 0 {
		t.Errorf("the backend got %d requests", len(got))
	}
}

// TestC044_BadKeys: a key is 1 to 255 visible ASCII bytes; the quotes of a structured field do not belong to it.
func TestC044_BadKeys(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, key := range []string{"", `""`, " ", `" "`, "a b", "a\tb", "k\xc3\xa9", "a\x01b", "a\x7fb", "\"a\x1f\"", strings.Repeat("k", 256),
		`"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 10_000)} {
		g.do(orderOf(goodBody, "Idempotency-Key: "+key+"\r\n")).wants(t, 400, stock.CodeBadRequest)
	}
	g.do(orderOf(goodBody, "Idempotency-Key: a\r\nIdempotency-Key: b\r\n")).wants(t, 400, stock.CodeBadRequest)
	if asked := g.adm.asked(); len(asked) > 0 || len(b.requests()) > 0 {
		t.Errorf("the admission was asked: %+v", asked)
	}
	for key, want := range map[string]string{
		"k1": "k1", `"k2"`: "k2", " \tk3 ": "k3", "!~": "!~",
		strings.Repeat("k", 255): strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`: strings.Repeat("k", 255),
		// One pair goes, and only a pair; nothing is unescaped: each text has one reading, and no two of them are one id by mistake.
		`"`: `"`, `"k`: `"k`, `k"`: `k"`, `k"k`: `k"k`, `""k""`: `"k"`, `"k\"k"`: `k\"k`, `"""`: `"`, `'k'`: `'k'`, `"k";a=1`: `"k";a=1`,
	} {
		if got := g.do(orderOf(goodBody, "Idempotency-Key: "+key+"\r\n")); got.StatusCode != 201 {
			t.Fatalf("key %s: %d %s", key, got.StatusCode, got.body)
		}
		asked := g.adm.asked()
		if last := asked[len(asked)-1]; last.RequestID != want {
			t.Errorf("key %s was understood as %q", key, last.RequestID)
		}
	}
}

// TestC044_KeysInBodies are read by the same rules, and agree with a header that has them with or without quotes.
func TestC044_KeysInBodies(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Routes[0].Admit.Request = []Place{Header("Idempotency-Key"), Body("key")}
	})
	for _, key := range []string{`""`, `"\"\""`, `"a b"`, `"a\u0001"`, `"a\n"`, `"\u00e9"`, `null`, `true`, `1.5`, `["k"]`, `"` + strings.Repeat("k", 10_000) + `"`} {
		g.do(orderOf(`{"sku":"a","user":"u","key":`+key+`}`)).wants(t, 400, stock.CodeBadRequest)
	}
	for key, want := range map[string]string{`"k1"`: "k1", `"\"k1\""`: "k1", `17`: "17", `"\u006b1"`: "k1"} {
		if got := g.do(orderOf(`{"sku":"a","user":"u","key":`+key+`}`, "Idempotency-Key: \""+want+"\"\r\n")); got.StatusCode != 201 {
			t.Fatalf("key %s: %d %s", key, got.StatusCode, got.body)
		}
		asked := g.adm.asked()
		if last := asked[len(asked)-1]; last.RequestID != want {
			t.Errorf("key %s was understood as %q", key, last.RequestID)
		}
	}
	g.do(orderOf(`{"sku":"a","user":"u","key":"k1"}`, "Idempotency-Key: k2\r\n")).wants(t, 400, stock.CodeBadRequest)
}

// TestC044_OtherSpellingSameWish: the order of keys and the spaces of a body make no difference to what is asked for.
func TestC044_OtherSpellingSameWish(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	for _, body := range []string{goodBody, "{ \"user\": \"u1\",\n\"qty\":2, \"sku\":\"sku-1001\" }", `{"sku":"sku\u002d1001","qty":2,"user":"u1","note":1}`} {
		if got := g.do(orderOf(body, "Idempotency-Key: k\r\n")); got.StatusCode != 201 {
			t.Fatalf("%s: %d %s", body, got.StatusCode, got.body)
		}
	}
	asked := g.adm.asked()
	for _, w := range asked[1:] {
		if w.RequestID != asked[0].RequestID || w.User != asked[0].User || stock.Fingerprint(w.Lines) != stock.Fingerprint(asked[0].Lines) {
			t.Errorf("understood as %+v and %+v", asked[0], w)
		}
	}
}

func TestRequiredRequestID(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) { c.Routes[0].Admit.RequestRequired = true })
	got := g.do(orderOf(goodBody))
	got.wants(t, 400, stock.CodeBadRequest)
	if !strings.Contains(got.body, "request is missing") {
		t.Errorf("answer %s does not name the field", got.body)
	}
}

func TestOtherPlaces(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		c.Routes = []Route{
			{Name: "by-path", Methods: []string{"POST"}, Path: "/shops/*", Upstream: "orders",
				Admit: &Admit{SKU: []Place{Segment(3)}, Qty: []Place{Query("n")}}},
			{Name: "by-form", Methods: []string{"POST"}, Path: "/form", Upstream: "orders",
				Admit: &Admit{SKU: []Place{Form("item"), Body("items.0.sku")}, Qty: []Place{Form("n"), Body("items.0.n")}}},
		}
	})
	post := func(target, contentType, body string) string {
		return "POST " + target + " HTTP/1.1\r\nHost: h\r\nContent-Type: " + contentType + "\r\nContent-Length: " + itoa(len(body)) +
			"\r\n\r\n" + body
	}
	f := func(request string, want stock.Line) {
		t.Helper()
		got := g.do(request)
		if want.Qty == 0 {
			got.wants(t, 400, stock.CodeBadRequest)
			return
		}
		if got.StatusCode != 201 {
			t.Fatalf("%d %s", got.StatusCode, got.body)
		}
		asked := g.adm.asked()
		if last := asked[len(asked)-1]; last.Lines[0] != want {
			t.Errorf("understood as %+v, want %+v", last.Lines[0], want)
		}
	}
	none := stock.Line{}
	f(post("/shops/7/sku-1?n=3", "text/plain", ""), stock.Line{SKU: "sku-1", Qty: 3})
	f(post("/shops/7/sku-1", "text/plain", ""), stock.Line{SKU: "sku-1", Qty: 1})
	f(post("/shops/7/sku-1?n=3&n=3", "text/plain", ""), none)
	f(post("/shops/7/sku-1?n=3&%6E=4", "text/plain", ""), none)
	f(post("/shops/7/sku-1?x=1;n=4", "text/plain", ""), none)
	f(post("/shops/7/sku-1?n=03", "text/plain", ""), none)
	f(post("/shops/7/sku-1?n=%zz", "text/plain", ""), none)
	f(post("/shops/7/sku-1?n=", "text/plain", ""), none)
	f(post("/shops/7/", "text/plain", ""), none)
	f(post("/shops/7//sku-1", "text/plain", ""), none)
	f(post("/shops/7/%73ku-1", "text/plain", ""), none)
	const form = "application/x-www-form-urlencoded"
	f(post("/form", form, "item=sku-2&n=4"), stock.Line{SKU: "sku-2", Qty: 4})
	f(post("/form", form+"; charset=utf-8", "n=4&item=sku%2d2"), stock.Line{SKU: "sku-2", Qty: 4})
	f(post("/form", form, "item=sku-2&item=sku-3"), none)
	f(post("/form", form, "item=sku+2"), none)
	f(post("/form", form, "item=sku%2"), none)
	f(post("/form", "application/json", `{"items":[{"sku":"sku-3","n":2}]}`), stock.Line{SKU: "sku-3", Qty: 2})
	f(post("/form", "application/json", `{"items":[]}`), none)
	f(post("/form", "application/json", `{"items":"sku-3"}`), none)
	f(post("/form", "application/json", `item=sku-2&n=4`), none)
}

// TestOneReadingOfParametersAndBodies: what another parser could find under the name of a field, or could not find at all, is refused and
// never taken for "absent".
func TestOneReadingOfParametersAndBodies(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr(), func(c *Config, _ *Parts) {
		route := func(name string, a Admit) Route {
			return Route{Name: name, Methods: []string{"POST"}, Path: "/" + name + "/*", Upstream: "orders", Admit: &a}
		}
		c.Routes = []Route{
			route("query", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Query("n")}}),
			route("form", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Form("n")}}),
			route("long", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Form("order_n")}}),
			route("json", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Body("n")}}),
			route("deep", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Body("items.0.n")}}),
			route("both", Admit{SKU: []Place{Segment(2)}, Qty: []Place{Form("n"), Query("n")}}),
		}
	})
	const form, json, none = "application/x-www-form-urlencoded", "application/json", ""
	f := func(target, contentType, body string, status int, code stock.Code) {
		t.Helper()
		if contentType != none {
			contentType = "Content-Type: " + contentType + "\r\n"
		}
		got := g.do("POST " + target + " HTTP/1.1\r\nHost: h\r\n" + contentType + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body)
		if status != 201 {
			got.wants(t, status, code)
		} else if got.StatusCode != 201 {
			t.Errorf("%s %s %s: %d %s", target, contentType, body, got.StatusCode, got.body)
		}
	}
	bad := func(target, contentType, body string) {
		t.Helper()
		f(target, contentType, body, 400, stock.CodeBadRequest)
	}
	unread := func(target, contentType, body string) {
		t.Helper()
		f(target, contentType, body, 415, stock.CodeUnsupportedEncoded)
	}
	good := func(target, contentType, body string) { t.Helper(); f(target, contentType, body, 201, "") }

	for _, pairs := range []string{"N=5", "n=1&N=5", "N=5&n=1", "n[]=5", "n=1&n[]=5", "n[0]=5", "n%5B%5D=5", "n=1&%4E=5", "n%00=5", "+n=5", "n+=5",
		"n%5bx]=5"} {
		bad("/query/a?"+pairs, none, "")
		bad("/form/a", form, pairs)
	}
	bad("/form/a", form, "n=1;n=5")
	for _, pairs := range []string{"order.n=5", "order+n=5", "order%5Bn=5", "Order_N=5"} {
		bad("/long/a", form, pairs)
	}
	good("/query/a?n=2&nn=5&m[]=1", none, "")
	good("/form/a", form, "n=2&nn=5&m[]=1")
	good("/form/a", none, "")

	for _, contentType := range []string{json, none, "multipart/form-data; boundary=x", "text/plain", form + "; charset=utf-16"} {
		unread("/form/a", contentType, `{"n":5}`)
	}
	for _, contentType := range []string{"multipart/form-data; boundary=x", "multipart/mixed", "application/xml", json + "; charset=utf-16",
		json + "; charset=", json + `; Charset="ISO-8859-1"`, json + "; charset=utf-8; charset=utf-7", "text/plain; charset=utf-7"} {
		unread("/json/a", contentType, `{"n":2}`)
	}
	for _, contentType := range []string{json, none, form, json + `; charset="UTF-8"`, "application/vnd.shop+json", "text/plain;charset=UTF-8"} {
		good("/json/a", contentType, `{"n":2}`)
	}
	bad("/json/a", form, `{"n":1,"x":"&n=5&"}`)
	bad("/deep/a", form, `{"items":[{"n":1}],"x":"&items[0][n]=5&"}`)

	bad("/form/a?n=5", form, "m=1")
	bad("/json/a?n=5", json, "{}")
	bad("/deep/a?items[0][n]=5", json, `{"items":[{}]}`)
	bad("/query/a?n=1", form, "n=5")
	good("/both/a?n=2", form, "n=2")
	bad("/both/a?n=1", form, "n=2")
	good("/query/a?n=2", json, `{"m":1}`)
}

func TestC081_EncodedBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	b := startBackend(t, answering(created))
	g := startGate(t, b.addr())
	g.do(orderOf(goodBody, "Content-Encoding: gzip\r\n")).wants(t, 415, stock.CodeUnsupportedEncoded)
	g.do(orderOf(goodBody, "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n")).wants(t, 415, stock.CodeUnsupportedEncoded)
	if got := g.do(orderOf(goodBody, "Content-Encoding: identity\r\n")); got.StatusCode != 201 {
		t.Errorf("identity: %d %s", got.StatusCode, got.body)
	}
}

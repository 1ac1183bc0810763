package orderservice

import (
	"encoding/hex"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAReservationIsMadeVoidOnceAndForAll(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	const path = "/orders/by-reservation/" + reservation + "/void"
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	b.wantStatus(200, "POST", "/orders/1/pay", "")
	for _, want := range []string{`{"cancelled":1}`, `{"cancelled":0}`} {
		if text := b.wantStatus(200, "POST", path, `{"reason":"surplus"}`); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	if o, known := b.ByReservation(reservation); !known || o.State != Cancelled || b.Count() != 0 {
		t.Fatalf("%+v", o)
	}
	b.wantStatus(409, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation) // it comes late
	b.wantStatus(200, "POST", "/orders/by-reservation/other/void", "")                  // there is none, and there will be none
	b.wantStatus(409, "POST", "/orders", `{"sku":"a"}`, reservationHeader, "other")
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`)
}

func TestVoidsGoWrongAsScripted(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	const path = "/orders/by-reservation/" + reservation + "/void"
	b.wantStatus(201, "POST", "/orders", `{"sku":"a"}`, reservationHeader, reservation)
	b.ScriptVoids(Fault{Status: 503, Lose: true}, Fault{Lose: true})
	b.wantStatus(503, "POST", path, "")
	b.wantStatus(200, "POST", path, "")
	if b.Count() != 1 {
		t.Fatal("a lost call has done something")
	}
	b.AlwaysVoids(Fault{After: Trouble{Close: CloseRST}})
	if got, _, _ := b.do("POST", path, ""); got != 0 || b.Count() != 0 {
		t.Fatalf("status %d, %d orders", got, b.Count())
	}
}

func TestOnlyASignedVoidIsObeyed(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	b := setup(t, Config{Keys: map[string][]byte{"k1": []byte("secret")}, Now: func() time.Time { return at }})
	const path, body = "/orders/by-reservation/" + reservation + "/void", `{"reason":"surplus"}`
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set(reservationHeader, reservation)
	signature := "t=1800000000,k=k1,v1=" + hex.EncodeToString(sign([]byte("secret"), at.Unix(), r, []byte(body)))
	b.wantStatus(200, "POST", path, body, reservationHeader, reservation, signatureHeader, signature)
	b.wantStatus(401, "POST", path, "{}", reservationHeader, reservation, signatureHeader, signature)
	b.wantStatus(401, "POST", path, body)
}

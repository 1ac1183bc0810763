package gateway

import (
	"testing"

	"github.com/valyala/fasthttp"
)

// A session belongs to one client; a kept answer is given to whoever repeats the request. The configuration refuses the field too.
func TestSetCookieIsNeverKept(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"Set-Cookie", "set-cookie", "SET-COOKIE"} {
		var resp fasthttp.Response
		resp.Header.DisableNormalizing()
		resp.SetStatusCode(201)
		resp.Header.Set(spelling, "session=1")
		resp.Header.Set("Location", "/o/1")
		resp.SetBodyString("ok")
		k := keeper{body: 100, headers: []string{"Location", "Set-Cookie"}}
		a := k.keep(&resp)
		if a == nil || len(a.Headers) != 1 || a.Headers[0].Name != "Location" {
			t.Errorf("%s: kept %+v", spelling, a)
		}
	}
}

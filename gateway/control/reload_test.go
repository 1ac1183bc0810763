package control

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

func TestReloadAnswersWhatIsWrong(t *testing.T) {
	t.Parallel()
	var done api.Reload
	var failed error
	b := setup(t, func(_ *Config, d *Deps) {
		d.Reload = func(context.Context) (api.Reload, error) { return done, failed }
		d.Configuration = func() api.Configuration {
			return api.Configuration{File: "f.yaml", Version: "abc", LoadedAt: time.Unix(1, 0).UTC(), Last: &api.Reload{At: time.Unix(2, 0).UTC(),
				By: api.ReloadByAPI, Result: api.ReloadTaken, Changes: []string{"limits"}}}
		}
	})
	f := func(status int, want string) {
		t.Helper()
		if got := b.do("POST", "/v1/reload", ""); got.status != status || !strings.Contains(got.body, want) {
			t.Errorf("%d %s, want %d with %s", got.status, got.body, status, want)
		}
	}
	done.Result = api.ReloadTaken
	f(200, `"version":"abc"`)
	done = api.Reload{Result: api.ReloadRefused, Problems: []api.BadLine{{Line: 3, Problem: "listen: has changed"}}}
	f(400, `"bad_lines":[{"line":3,"problem":"listen: has changed"}]`)
	failed = fmt.Errorf("rules: %w", stock.ErrNotExecuted)
	f(503, `nothing was changed`)
	if got := b.do("GET", "/v1/config", ""); got.status != 200 || !strings.Contains(got.body, `"result":"taken","changes":["limits"]`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

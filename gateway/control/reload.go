package control

import (
	"fmt"
	"net/http"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// getConfig answers what this replica runs by.
func (s *Server) getConfig(*http.Request) (any, error) { return s.deps.Configuration(), nil }

// reload reads the configuration file again. A file that is at fault is answered line by line.
func (s *Server) reload(r *http.Request) (any, error) {
	done, err := s.deps.Reload(r.Context())
	if err != nil {
		return nil, err
	}
	if done.Result == api.ReloadRefused {
		problem := badField("the configuration file", "at fault", fmt.Sprintf("nothing has changed: %s", done.Problems[0].Problem))
		problem.Field, problem.BadLines, problem.BadLinesTotal = "", done.Problems, len(done.Problems)
		return nil, problem
	}
	return s.deps.Configuration(), nil
}

package control

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/stockgate/stockgate/gateway/control/api"
)

// description is the checked-in document, parsed once.
var description = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		return nil, err
	}
	openapi3filter.RegisterBodyDecoder("text/csv", openapi3filter.PlainBodyDecoder)
	return doc, doc.Validate(context.Background())
})

func describe(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := description()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestTheDescriptionHasEveryRouteAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	served := map[string]access{}
	for _, rt := range b.server.routes() {
		served[rt.pattern] = rt.needs
	}
	for path, item := range describe(t).Paths.Map() {
		for method, op := range item.Operations() {
			needs, ok := served[method+" "+path]
			if !ok {
				t.Errorf("%s %s is described and not served", method, path)
			}
			if tag := map[access]string{look: "look", change: "change"}[needs]; len(op.Tags) != 1 || op.Tags[0] != tag {
				t.Errorf("%s %s has the tags %v, want %s", method, path, op.Tags, tag)
			}
			delete(served, method+" "+path)
		}
	}
	for pattern := range served {
		t.Errorf("%s is served and not described", pattern)
	}
	if got := b.do("GET", "/v1/openapi.json", ""); got.status != 200 || !strings.Contains(got.body, `"openapi":"3.1.0"`) {
		t.Fatalf("%d %.100s", got.status, got.body)
	}
}

// described holds the request, if it was taken, and the answer against the description. What matches no route has none.
func (b *bundle) described(req *http.Request, body string, got reply) {
	b.t.Helper()
	route, values := b.routeOf(req)
	if route == nil || got.status == http.StatusNotFound && strings.Contains(got.body, `"NO_ROUTE"`) {
		return
	}
	copied := req.Clone(context.Background())
	copied.Body = io.NopCloser(strings.NewReader(body))
	copied.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(route.Path, "/import") {
		copied.Header.Set("Content-Type", "text/csv")
	}
	in := &openapi3filter.RequestValidationInput{Request: copied, PathParams: values, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if got.status < 400 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			b.t.Errorf("%s %s %s was taken, but does not fit its description: %v", req.Method, req.URL, body, err)
		}
	}
	if got.header.Get("Content-Type") == api.ProgressType {
		return // line by line, see TestAnImportTellsHowFarItIs
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: got.status, Header: got.header,
		Body: io.NopCloser(bytes.NewReader([]byte(got.body)))}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		b.t.Errorf("%s %s answered %d %s, which does not fit its description: %v", req.Method, req.URL, got.status, got.body, err)
	}
}

// routeOf is the description's route of a request, found by the server's own table.
func (b *bundle) routeOf(req *http.Request) (*routers.Route, map[string]string) {
	_, pattern := b.server.mux.Handler(req)
	method, path, _ := strings.Cut(pattern, " ")
	if !strings.HasPrefix(path, "/v1/") || method != req.Method {
		return nil, nil
	}
	doc := describe(b.t)
	item := doc.Paths.Find(path)
	values := map[string]string{}
	parts, have := strings.Split(path, "/"), strings.Split(req.URL.Path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			values[strings.Trim(part, "{}")] = have[i]
		}
	}
	return &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method)}, values
}

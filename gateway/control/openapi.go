package control

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI describes the API for machines: clients are made of it, and the tests hold every call and answer against it.
//
//go:embed openapi.json
var openAPI json.RawMessage

// describeItself answers the description.
func describeItself(*http.Request) (any, error) { return openAPI, nil }

package control

import (
	"embed"
	"net/http"
)

//go:embed ui
var uiFiles embed.FS

// dashboardPolicy lets the page run its own files and talk to its own listener, nothing else.
const dashboardPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// dashboard serves the page at /ui/. It holds no data, so it needs no token; it asks for one and calls /v1 with it.
func dashboard() http.Handler {
	serve := http.FileServerFS(uiFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", dashboardPolicy)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}

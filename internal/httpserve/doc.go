// Package httpserve runs a net/http server for as long as a context lives. It adds one thing to http.Server: connections that were
// opened and never used, as browsers and pools keep them, do not hold up the end. http.Server would wait five seconds for them.
package httpserve

// Package crashpoint lets a test end the process, as a SIGKILL would, at a named point of a request's way. It does nothing unless the
// binary was built with the tag crashpoints: then STOCKGATE_CRASH=<point>:<n> ends it when the point is passed for the nth time.
//
// The points are After*; each stands between two steps of which the second must not be needed for the first to be safe.
package crashpoint

// The points.
const (
	AfterPrededuct = "after-prededuct" // Redis has taken the units, the database knows nothing
	AfterCommit    = "after-commit"    // the reservation is committed, nothing was sent
	AfterSend      = "after-send"      // the backend may have read the request, no reply was read
	AfterReply     = "after-reply"     // the backend has answered, nothing is booked
)

package stock

// Code is the stable name of an answer that the gateway gives itself. Codes are part of the public contract.
type Code string

// The codes, grouped by HTTP status.
const (
	CodeSoldOut            Code = "SOLD_OUT"             // 409
	CodePurchaseLimit      Code = "PURCHASE_LIMIT"       // 409
	CodeReleased           Code = "RELEASED"             // 409
	CodeInFlight           Code = "IN_FLIGHT"            // 409
	CodeKeyReused          Code = "KEY_REUSED"           // 422
	CodeBadRequest         Code = "BAD_REQUEST"          // 400
	CodeUnknownSKU         Code = "UNKNOWN_SKU"          // 404
	CodeUnknownReservation Code = "UNKNOWN_RESERVATION"  // 404
	CodeNoRoute            Code = "NO_ROUTE"             // 404
	CodeNotStarted         Code = "NOT_STARTED"          // 403
	CodeEnded              Code = "ENDED"                // 403
	CodeMethodNotAllowed   Code = "METHOD_NOT_ALLOWED"   // 405
	CodeUnauthorized       Code = "UNAUTHORIZED"         // 401
	CodeRateLimited        Code = "RATE_LIMITED"         // 429
	CodeSKULimited         Code = "SKU_LIMITED"          // 429
	CodeQueueFull          Code = "QUEUE_FULL"           // 503
	CodeQueueTimeout       Code = "QUEUE_TIMEOUT"        // 503
	CodePaused             Code = "PAUSED"               // 503
	CodeNotLoaded          Code = "NOT_LOADED"           // 503
	CodeUnavailable        Code = "UNAVAILABLE"          // 503
	CodeCorruptStock       Code = "CORRUPT_STOCK"        // 503
	CodeBackendFailed      Code = "BACKEND_FAILED"       // 502
	CodeOutcomeUnknown     Code = "OUTCOME_UNKNOWN"      // 504
	CodeBodyTooLarge       Code = "BODY_TOO_LARGE"       // 413
	CodeHeadersTooLarge    Code = "HEADERS_TOO_LARGE"    // 431
	CodeUnsupportedEncoded Code = "UNSUPPORTED_ENCODING" // 415
	CodeRequestTimeout     Code = "REQUEST_TIMEOUT"      // 408
	CodeExpectationFailed  Code = "EXPECTATION_FAILED"   // 417
	CodeInternal           Code = "INTERNAL"             // 500
)

package gateway

// fate is what becomes of a request header on its way to the backend.
type fate uint8

const (
	fateKeep           fate = iota // goes on byte for byte
	fateDrop                       // of this connection, of our own framing, or reserved for us
	fateHost                       // written first
	fateForwarded                  // only from trusted proxies
	fateForwardedFor               // only from trusted proxies, and the peer is added
	fateForwardedProto             // only from trusted proxies, else ours
	fateForwardedHost
	fateRealIP
	fateRequestID
	fateIdempotencyKey // goes on, and none is added
)

// fateBytesMax is longer than every name that is treated in a special way.
const fateBytesMax = 32

// fateOf looks a name up. An underscore counts as a dash: behind a CGI-like backend both are the same variable.
func fateOf(name []byte) fate {
	if len(name) > fateBytesMax {
		return fateOfPrefix(name)
	}
	var room [fateBytesMax]byte
	for i, c := range name {
		room[i] = lowerDashed(c)
	}
	switch string(room[:len(name)]) {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
		"transfer-encoding", "upgrade", "http2-settings", "content-length", "expect":
		return fateDrop
	// A backend that follows these would do another request than the one that was matched and counted.
	case "x-http-method-override", "x-http-method", "x-method-override", "x-method", "http-method-override", "method-override",
		"x-http-path-override", "x-override-url", "x-override-uri", "x-override-path", "x-override-method":
		return fateDrop
	case "host":
		return fateHost
	case "forwarded":
		return fateForwarded
	case "x-forwarded-for":
		return fateForwardedFor
	case "x-forwarded-proto":
		return fateForwardedProto
	case "x-forwarded-host":
		return fateForwardedHost
	case "x-real-ip":
		return fateRealIP
	case "x-request-id":
		return fateRequestID
	case "idempotency-key":
		return fateIdempotencyKey
	}
	return fateOfPrefix(name)
}

func fateOfPrefix(name []byte) fate {
	if begins(name, "stockgate-") || otherTarget(name) {
		return fateDrop
	}
	if begins(name, "x-forwarded-") {
		return fateForwarded
	}
	return fateKeep
}

// otherTarget reports whether a name says that the request was another one before: X-Original-URL, X-Rewrite-Path, X-Forwarded-Method and
// all their kin. A trusted proxy does not vouch for them either, since it passes on what it does not know.
func otherTarget(name []byte) bool {
	for _, prefix := range [...]string{"x-original-", "x-rewrite-", "x-forwarded-"} {
		if !begins(name, prefix) {
			continue
		}
		for _, part := range [...]string{"method", "url", "uri", "path", "target", "query", "request-uri", "path-info"} {
			if resembles(name[len(prefix):], part) {
				return true
			}
		}
	}
	return false
}

func begins(name []byte, prefix string) bool {
	return len(name) >= len(prefix) && resembles(name[:len(prefix)], prefix)
}

// answerFate is what becomes of a backend's header on its way to the client.
type answerFate uint8

const (
	answerKeep answerFate = iota
	answerDrop
	answerOutcome // Stockgate-Outcome: consumed
)

func answerFateOf(name []byte) answerFate {
	switch {
	case resembles(name, "Stockgate-Outcome"):
		return answerOutcome
	case begins(name, "stockgate-"):
		return answerDrop
	}
	for _, hop := range [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade"} {
		if named(name, hop) {
			return answerDrop
		}
	}
	for _, c := range name {
		if !tokenByte(c) {
			return answerDrop
		}
	}
	return answerKeep
}

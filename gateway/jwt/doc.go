// Package jwt says who a buyer is by a signed token, so that a purchase limit does not hang on a header that anybody can write.
//
// # What is believed
//
// A token in compact form (RFC 7519) whose signature a key of the issuer verifies, by one of the algorithms that are configured. There is no
// way to configure none or an HMAC: keys are public, and a key that is no public one is left out, so that no public key can be taken for a
// shared secret. A key that names its algorithm or use serves for no other. The token must have exp; exp, nbf and iat hold give or take
// Config.Leeway; issuer and audience must be those of the configuration, if it names them. Extensions that the token calls critical are refused.
//
// # Keys
//
// The issuer's keys (JWKS, RFC 7517) come from a file or an https URL, and are read again each Config.Refresh. Requests never wait for that:
//
//   - Not read yet, or a key id that nobody has seen and the keys are older than Config.Pause: ErrPending, and they are read now. Reads
//     keep Config.Pause between them, whatever tokens come in.
//   - A key id that is not among keys just read: the token is refused.
//   - Reading fails: the keys that are there stay.
//
// # Cost
//
// A token that was verified is remembered by its SHA-256 until it expires, or the keys change, so that a buyer's next request costs a hash and
// no signature. The table has two halves: when the newer one is full the older is forgotten, so its size is bounded and what is used stays.
// Tokens that are refused are not remembered: they cost what they cost each time, and limits by address see to who sends many.
package jwt

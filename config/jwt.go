package config

// JWT is about tokens that a buyer's requests carry and that say who the buyer is: jwt.<claim> in admit.user. A token is believed if a key
// of the issuer has signed it and it has not expired; else the request gets 401 UNAUTHORIZED.
type JWT struct {
	// The issuer's public keys as a JSON Web Key Set: a path, or a URL with https (http for a loopback address only). Empty: no token is
	// taken.
	JWKS string `yaml:"jwks" range:"0..2048"`
	// What iss must be. Empty: anything.
	Issuer string `yaml:"issuer" range:"0..1024"`
	// What aud must have. Empty: anything, also a token that was made for another service.
	Audience string `yaml:"audience" range:"0..1024"`
	// Algorithms that are taken: RS, PS and ES with 256, 384 or 512, and EdDSA.
	Algorithms []string `yaml:"algorithms" default:"RS256,ES256" range:"1..10"`
	// Header with the token: after Bearer in Authorization, with or without it in another.
	Header string `yaml:"header" default:"Authorization" range:"1..256"`
	// How far the issuer's clock may be from this one.
	Leeway Duration `yaml:"leeway" default:"30s" range:"0s..10m"`
	// How often the keys are read again. A token with an unknown key has them read at once, at most every 10 s. The old ones stay while
	// they cannot be read.
	Refresh Duration `yaml:"refresh" default:"5m" range:"10s..24h"`
	// Verified tokens that are remembered until they expire, so that their signature is not computed again.
	Tokens int `yaml:"tokens" default:"50000" range:"1..10000000"`
}

package config

// Secret is a text that is never printed: fmt, JSON and YAML show [secret], or nothing for an empty one. Reveal is the one way to
// the text, so that a search for it finds every use.
type Secret string

// hidden is what a Secret prints as.
const hidden = "[secret]"

// Reveal gives the text itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the text.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the text from %#v.
func (s Secret) GoString() string { return `config.Secret("` + s.String() + `")` }

// MarshalText hides the text from JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

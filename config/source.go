package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SourceKind says in which part of a request a field is looked for.
type SourceKind uint8

// The kinds of source.
const (
	SourceNone   SourceKind = iota
	SourceBody              // body.<dot path of keys and indices>: Path
	SourceHeader            // header.<name>: Name, compared without case
	SourceQuery             // query.<name>: Name
	SourcePath              // path.<n>: Index, from 1
	SourceForm              // form.<name>: Name
	SourceJWT               // jwt.<claim>: Name; of the verified token, in admit.user only
	SourceLine              // <dot path>, in a line of a cart only: Path
)

const (
	sourceDepthMax   = 16  // keys in a body path
	sourceNameMax    = 256 // bytes of one name or key
	sourceSegmentMax = 64  // highest n of path.<n>
)

var sourceNames = [...]string{"", "body", "header", "query", "path", "form", "jwt", ""}

// Source is one place of a request to take a field from. The zero Source is none.
type Source struct {
	Kind  SourceKind
	Name  string   // SourceHeader, SourceQuery, SourceForm, SourceJWT
	Path  []string // SourceBody, SourceLine; a key that is a number is also an index
	Index int      // SourcePath, 1 to 64
}

var errSource = errors.New("must be body.<path>, header.<name>, query.<name>, path.<n from 1> or form.<name>")

var errClaim = errors.New("must be jwt.<claim>, such as jwt.sub")

// ParseSource reads a source. A text without a known prefix is a SourceLine, valid only beside admit.lines.
func ParseSource(s string) (Source, error) {
	var src Source
	if err := src.UnmarshalText([]byte(s)); err != nil {
		return Source{}, fmt.Errorf("source %s: %w", quote(s), err)
	}
	return src, nil
}

// IsZero reports whether there is no source.
func (s Source) IsZero() bool { return s.Kind == SourceNone }

// Equal reports whether both name the same place. Header names are compared without case.
func (s Source) Equal(o Source) bool {
	if s.Kind != o.Kind || s.Index != o.Index || !slices.Equal(s.Path, o.Path) {
		return false
	}
	return s.Name == o.Name || (s.Kind == SourceHeader && strings.EqualFold(s.Name, o.Name))
}

// UnmarshalText reads a source; the empty text is none. Its error leaves the value out.
func (s *Source) UnmarshalText(text []byte) error {
	*s = Source{}
	t := string(text)
	if t == "" {
		return nil
	}
	prefix, rest, dotted := strings.Cut(t, ".")
	kind := SourceKind(max(0, slices.Index(sourceNames[:], prefix)))
	if kind == SourceNone || (!dotted && prefix != "") {
		kind, rest = SourceLine, t // a line's field may be called body; only body.x is the whole body
	}
	return s.set(kind, rest)
}

func (s *Source) set(kind SourceKind, rest string) (err error) {
	made := Source{Kind: kind}
	switch kind {
	case SourceBody, SourceLine:
		made.Path, err = parseBodyPath(rest)
	case SourcePath:
		made.Index, err = parseSegment(rest)
	case SourceHeader:
		made.Name, err = rest, checkHeaderName(rest)
	case SourceJWT:
		if made.Name, err = rest, checkSourceName(rest); err != nil {
			err = errClaim
		}
	default:
		made.Name, err = rest, checkSourceName(rest)
	}
	if err != nil {
		return err
	}
	*s = made
	return nil
}

func parseBodyPath(s string) ([]string, error) {
	keys := strings.Split(s, ".")
	if len(keys) > sourceDepthMax {
		return nil, fmt.Errorf("must be a path of at most %d keys", sourceDepthMax)
	}
	for _, k := range keys {
		if checkSourceName(k) != nil {
			return nil, errors.New("must be a path of keys between single dots")
		}
	}
	return keys, nil
}

func parseSegment(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > sourceSegmentMax || strconv.Itoa(n) != s {
		return 0, fmt.Errorf("must be path.<n> with n from 1 to %d", sourceSegmentMax)
	}
	return n, nil
}

func checkSourceName(s string) error {
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }
	if s == "" || len(s) > sourceNameMax || strings.ContainsFunc(s, bad) {
		return errSource
	}
	return nil
}

func checkHeaderName(s string) error {
	switch {
	case !isToken(s):
		return errors.New("must name a header of letters, digits and -")
	case isStockgateHeader(s):
		return errors.New("must not name a Stockgate- header, they are removed from requests")
	}
	return nil
}

// String gives the source as it is written.
func (s Source) String() string {
	switch s.Kind {
	case SourceNone:
		return ""
	case SourceLine:
		return strings.Join(s.Path, ".")
	case SourceBody:
		return "body." + strings.Join(s.Path, ".")
	case SourcePath:
		return "path." + strconv.Itoa(s.Index)
	}
	return sourceNames[s.Kind] + "." + s.Name
}

// MarshalText is String.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// isToken reports whether s is an HTTP token (RFC 9110) of at most 256 bytes.
func isToken(s string) bool {
	if s == "" || len(s) > sourceNameMax {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isAlphanumeric(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isStockgateHeader(name string) bool {
	const prefix = "stockgate-"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

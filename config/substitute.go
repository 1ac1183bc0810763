package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// refFileMax bounds a file named by ${file:…}: secrets and certificates are small, and /dev/zero never ends.
const refFileMax = 1 << 20

// expand replaces every ${NAME} and ${file:/path} in text; $${ stands for ${ itself. What is put in is not looked through again.
// found tells whether text holds a reference. On an error the name is that of the reference, never its value.
func (o Options) expand(text string) (out string, found bool, err error) {
	var b strings.Builder
	for rest := text; ; {
		i := strings.Index(rest, "${")
		if i < 0 {
			b.WriteString(rest)
			return b.String(), found, nil
		}
		if i > 0 && rest[i-1] == '$' {
			b.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		name, after, closed := strings.Cut(rest[i+2:], "}")
		if !closed {
			return "", true, errors.New("has ${ without }; write $${ for ${ itself")
		}
		value, err := o.resolve(name)
		if err != nil {
			return "", true, err
		}
		b.WriteString(rest[:i] + value)
		rest, found = after, true
	}
}

// missingError says that a variable or file is not there, which Options.AllowMissing lets pass.
type missingError struct{ rule string }

func (e missingError) Error() string { return e.rule }

func (o Options) resolve(name string) (string, error) {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		return o.resolveFile(path)
	}
	if !isVariable(name) {
		return "", errors.New("must name a variable, ${NAME}, or a file, ${file:/path}")
	}
	value, ok := o.LookupEnv(name)
	if !ok {
		return "", missingError{fmt.Sprintf("variable %s is not set", name)}
	}
	return value, checkText(value, "variable "+name)
}

func (o Options) resolveFile(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errors.New("must name a file by its whole path, ${file:/path}")
	}
	content, err := o.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", missingError{fmt.Sprintf("file %s does not exist", path)}
	}
	if err != nil {
		return "", fmt.Errorf("file %s cannot be read: %w", path, cause(err))
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	return text, checkText(text, "file "+path)
}

// checkText refuses what no key can hold.
func checkText(s, what string) error {
	if len(s) > refFileMax {
		return fmt.Errorf("%s has more than %d bytes", what, refFileMax)
	}
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s is not UTF-8 text", what)
	}
	return nil
}

// cause drops operation and path from an error of package os, for the Problem names the file already.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// isVariable reports whether s may name an environment variable.
func isVariable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '_' && (!isAlphanumeric(s[i]) || i == 0 && s[i] <= '9') {
			return false
		}
	}
	return s != ""
}

// readBounded reads a file of at most one byte more than limit, which is how the caller notices that it is too big.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

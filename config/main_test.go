package config

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated files and the expectations in testdata anew; look at the diff")

// testOptions is a world with a few variables and files in it.
func testOptions() Options {
	return Options{
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"POOL": "16", "EMPTY": "", "TOKEN": "hunter2hunter2hunter2", "BAD_NUMBER": "s3cret"}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			text, ok := map[string]string{"/run/secrets/stockgate": "0123456789abcdef\n", "/run/secrets/crlf": "0123456789abcdef\r\n",
				"/run/secrets/short": "tooshort", "/run/secrets/binary": "\xff\xfe", "/run/secrets/lines": "a\n\n"}[path]
			if path == "/run/secrets" {
				return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("is a directory")}
			}
			if !ok {
				return nil, os.ErrNotExist
			}
			return []byte(text), nil
		},
	}
}

// parse reads a configuration that must be valid.
func parse(t *testing.T, lines ...string) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(strings.Join(lines, "\n")), testOptions())
	if err != nil {
		t.Fatalf("valid configuration refused:\n%v", err)
	}
	return c
}

// problemsOf reads a configuration and gives its problems, one per line.
func problemsOf(t *testing.T, lines ...string) string {
	t.Helper()
	_, err := Parse("", []byte(strings.Join(lines, "\n")), testOptions())
	if err == nil {
		return ""
	}
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatalf("error is %T, want Problems", err)
	}
	return ps.Error()
}

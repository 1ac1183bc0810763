package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
)

// Relative links resolve, with their anchors. What leads out of the repository is not followed.
func TestRelativeLinksResolve(t *testing.T) {
	t.Parallel()
	for _, p := range append(pages(t), readPage(t, "docs/configuration.md")) {
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			name := p.name
			if target != "" {
				name = p.beside(target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(name))); err != nil {
				t.Errorf("%s links to %s, which is not there", p.name, m[1])
				continue
			}
			if anchor != "" && !anchors(read(t, name))[anchor] {
				t.Errorf("%s links to %s, %s has no such heading", p.name, m[1], name)
			}
		}
	}
}

// anchors are what forges make of headings: lower case, spaces to dashes, punctuation dropped.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))] = true
	}
	return found
}

// Every page of docs is reachable from the README.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		p := readPage(t, name)
		for _, m := range link.FindAllStringSubmatch(p.prose(), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if strings.HasSuffix(target, ".md") && !strings.Contains(target, "://") {
				follow(p.beside(target))
			}
		}
	}
	follow("README.md")
	for _, name := range files(t, ".md") {
		if strings.HasPrefix(name, "docs/") && !reached[name] {
			t.Errorf("no link leads from the README to %s", name)
		}
	}
}

// Lines are short enough to read beside code. A row of a table cannot be broken, and neither can a command.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	const most = 140
	for _, p := range handbook(t) {
		for i, line := range strings.Split(fenced.ReplaceAllStringFunc(p.text, blank), "\n") {
			if n := utf8.RuneCountInString(line); n > most && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d characters, at most %d", p.name, i+1, n, most)
			}
		}
	}
}

// blank keeps the lines' numbers.
func blank(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }

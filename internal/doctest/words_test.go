package doctest

import (
	"regexp"
	"strings"
	"testing"
)

// synonym is a word of the glossary's last column that has no other use in these pages.
type synonym struct {
	word    string // as in the glossary
	pattern string
	allowed string // where it is the word that is meant; "" = nowhere
}

var synonyms = []synonym{
	{"pre-order", `(?i)\bpre-?orders?\b`, ""},
	{"restock", `(?i)\brestock\w*`, ""},
	{"rollback", `(?i)\broll-?backs?\b`, ""}, // a transaction "is rolled back"
	{"shard", `(?i)\bshard(s|ed|ing)?\b`, ""},
	{"bucket", `(?i)\bbuckets?\b`, `(?i)\b(token|native) buckets?\b`},
	{"journal", `(?i)\bjournals?\b`, ""},
	{"attempt", `(?i)\battempt(s|ed)?\b`, ""},
	{"freeze", `(?i)\b(freez(e|es|ing)|frozen?)\b`, ""},
	{"flush", `\bflush(es|ed|ing)?\b`, ""}, // SCRIPT FLUSH is Redis's own word
	{"generation", `(?i)\bgenerations?\b`, ""},
	{"promotion", `(?i)\bpromotions?\b`, ""},
	{"item", `(?i)\bitems?\b`, ""},
	{"product", `(?i)\bproducts?\b`, `(?i)\b(the|a) product\b|part of the product`},
}

// advertising says nothing that can be checked.
var advertising = regexp.MustCompile(`(?i)\b(blazing(ly)?|seamless(ly)?|robust(ly)?|powerful|cutting-edge|world-class|effortless(ly)?|` +
	`enterprise-grade|production-ready|battle-tested|rock-solid|lightning|revolutionary|state-of-the-art|best-in-class)\b`)

// The glossary's words are used, not their synonyms. Code between backticks is not prose.
func TestGlossaryWordsAreUsed(t *testing.T) {
	t.Parallel()
	for _, s := range synonyms {
		word, allowed := regexp.MustCompile(s.pattern), regexp.MustCompile(s.allowed)
		for _, p := range handbook(t) {
			if p.name == "docs/glossary.md" {
				continue
			}
			for i, line := range p.proseLines() {
				if s.allowed != "" {
					line = allowed.ReplaceAllString(line, "")
				}
				if found := word.FindString(line); found != "" {
					t.Errorf("%s:%d says %q; see the glossary for the word that is used", p.name, i+1, found)
				}
			}
		}
	}
}

// Each word of the list stands in the glossary as a synonym, so that the list cannot ban what the glossary does not.
func TestSynonymsAreThoseOfTheGlossary(t *testing.T) {
	t.Parallel()
	not := map[string]bool{}
	for _, line := range strings.Split(readPage(t, "docs/glossary.md").text, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 3 {
			continue
		}
		for word := range strings.SplitSeq(cells[2], ",") {
			not[strings.TrimSpace(word)] = true
		}
	}
	for _, s := range synonyms {
		if !not[s.word] {
			t.Errorf("%q is no synonym in docs/glossary.md", s.word)
		}
		if !regexp.MustCompile(s.pattern).MatchString(s.word) {
			t.Errorf("the pattern of %q does not find it", s.word)
		}
	}
}

func TestNoAdvertising(t *testing.T) {
	t.Parallel()
	for _, p := range handbook(t) {
		for i, line := range p.proseLines() {
			if found := advertising.FindString(line); found != "" {
				t.Errorf("%s:%d says %q", p.name, i+1, found)
			}
		}
	}
}

// proseLines are the page's lines without code, numbered as in the file.
func (p page) proseLines() []string {
	text := fenced.ReplaceAllStringFunc(p.text, blank)
	text = inline.ReplaceAllString(text, "")
	return strings.Split(text, "\n")
}

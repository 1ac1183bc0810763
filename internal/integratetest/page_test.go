package integratetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pieces of code on the page, by the language of their fence, and the file that they are cut out of.
var files = map[string]string{
	"go":   "examples/integrate/go/main.go",
	"java": "examples/integrate/java/OrderService.java",
	"js":   "examples/integrate/node/orderservice.mjs",
}

// What docs/integrate.md shows is what the files have, line by line; only the indentation may differ. So what runs here is what a reader
// copies. Each piece is there in every language.
func TestThePiecesOfThePageAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/integrate.md")
	shown := map[string]int{}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		file := files[m[1]]
		if file == "" {
			continue // a command, a configuration, a picture
		}
		shown[m[1]]++
		if !strings.Contains(flat(read(t, file)), flat(m[2])) {
			t.Errorf("%s does not have this piece of docs/integrate.md:\n%s", file, m[2])
		}
	}
	for language, file := range files {
		if shown[language] < 5 || shown[language] != shown["go"] {
			t.Errorf("the page shows %d pieces of %s, and %d of the Go one", shown[language], file, shown["go"])
		}
		if !strings.Contains(page, "(../"+file+")") {
			t.Errorf("the page does not lead to %s", file)
		}
	}
}

// flat is a text without its indentation.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines("\n" + text) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

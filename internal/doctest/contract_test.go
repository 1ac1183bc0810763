package doctest

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// docs/http.md lists every code of package stock with its status, and no other.
func TestCodesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	statuses := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s+Code\w+\s+Code = "([A-Z_]+)"\s+// (\d{3})$`).
		FindAllStringSubmatch(read(t, "stock/code.go"), -1) {
		statuses[m[1]] = m[2]
	}
	if len(statuses) < 20 {
		t.Fatalf("found only %d codes in stock/code.go", len(statuses))
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (\\d{3}) \\|").FindAllStringSubmatch(readPage(t, "docs/http.md").text, -1) {
		listed[m[1]] = true
		if statuses[m[1]] != m[2] {
			t.Errorf("docs/http.md says %s is %s, the code says %q", m[1], m[2], statuses[m[1]])
		}
	}
	for code := range statuses {
		if !listed[code] {
			t.Errorf("docs/http.md does not list %s", code)
		}
	}
}

// Every call of the control API stands in docs/http.md, and every call there is served.
func TestControlCallsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`^(GET|PUT|POST|DELETE) (/\S+)$`)
	served := map[string]bool{}
	for _, file := range []string{"gateway/control/server.go"} {
		ast.Inspect(code(t).files[file], func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if s, ok := literal(e); ok && pattern.MatchString(s) && !strings.Contains(s, "{$}") {
					served[s] = true
				}
			}
			return true
		})
	}
	if len(served) < 12 {
		t.Fatalf("found only %d patterns in gateway/control/server.go", len(served))
	}
	_, section, found := strings.Cut(readPage(t, "docs/http.md").text, "\n## Control API\n")
	if !found {
		t.Fatal("docs/http.md has no section Control API")
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
		if !served[m[1]] {
			t.Errorf("docs/http.md lists %s, it is not served", m[1])
		}
	}
	for call := range served {
		if !listed[call] {
			t.Errorf("docs/http.md does not list %s", call)
		}
	}
}

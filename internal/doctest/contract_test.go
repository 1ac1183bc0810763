package doctest

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockgate/stockgate/config"
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

// minimal is the file that the README shows and that users copy.
const minimal = "examples/minimal.yaml"

// The configuration to begin with is valid, is served, and runs as it is written, with the variables that the README sets.
func TestTheMinimalConfigurationIsServed(t *testing.T) {
	t.Parallel()
	readme := readPage(t, "README.md")
	set := map[string]string{"DATABASE_URL": "postgres://shop@127.0.0.1:5432/shop?sslmode=disable", "CONTROL_TOKEN": "0123456789abcdef",
		"SIGN_SECRET": "0123456789abcdef"}
	lookup := func(name string) (string, bool) {
		v, known := set[name]
		return v, known && regexp.MustCompile(`(?m)^export .*\b`+name+`=`).MatchString(readme.text)
	}
	cfg, err := config.Load(filepath.Join(root, filepath.FromSlash(minimal)), config.Options{LookupEnv: lookup})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(config.Refusals(cfg), config.Warnings(cfg)...) {
		t.Errorf("%s", p)
	}
	if examples := readme.blocks("yaml"); len(examples) != 1 || examples[0].text != read(t, minimal) {
		t.Errorf("the README has %d blocks of YAML; want one, which is %s", len(examples), minimal)
	}
}

// example.yaml is what the README calls it: valid but for its secret file, and served, with warnings about what is not built yet. When
// there are none any more, the README must say so.
func TestTheTourIsServedWithWarnings(t *testing.T) {
	t.Parallel()
	name := filepath.Join(root, "example.yaml")
	if _, err := config.Load(name, config.Options{ReadFile: func(f string) ([]byte, error) {
		if f == name {
			return os.ReadFile(f)
		}
		return nil, os.ErrNotExist
	}}); err == nil || !strings.Contains(err.Error(), "/run/secrets/stockgate") {
		t.Errorf("without its secret file: %v", err)
	}
	cfg, err := config.Load(name, config.Options{AllowMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range config.Refusals(cfg) {
		t.Errorf("serve refuses %s; the README says that it takes all of it", p)
	}
	if !slices.ContainsFunc(config.Warnings(cfg), func(p config.Problem) bool { return strings.Contains(p.Rule, "not built yet") }) {
		t.Error("nothing of example.yaml is not built yet; the README says that some of it is")
	}
}

// The README's first commands are the lines that the demo prints.
func TestTheReadmeShowsWhatTheDemoPrints(t *testing.T) {
	t.Parallel()
	printed := ""
	ast.Inspect(code(t).files["cmd_demo.go"], func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if s, ok := literal(e); ok && strings.Contains(s, "curl") {
				at := config.DemoDefaults()
				printed = fmt.Sprintf(s, config.DemoStock, config.DemoSKU, at.Listen, at.Control, at.Orders)
			}
		}
		return true
	})
	commands := regexp.MustCompile(`(?m)curl .*$`).FindAllString(printed, -1)
	if len(commands) < 3 {
		t.Fatalf("found only %d commands in what the demo prints: %q", len(commands), printed)
	}
	shown := map[string]bool{}
	for _, b := range readPage(t, "README.md").blocks("sh") {
		for line := range strings.Lines(b.text) {
			shown[strings.TrimSpace(line)] = true
		}
	}
	for _, c := range commands {
		if !shown[c] {
			t.Errorf("the README does not show what the demo prints: %s", c)
		}
	}
}

// Configuration keys that pages name are in docs/configuration.md. Those with a star stand for several.
func TestNamedSettingsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^(?:\\| |## )`([^`]+)`").FindAllStringSubmatch(read(t, "docs/configuration.md"), -1) {
		for key := m[1]; key != ""; key = key[:max(0, strings.LastIndexAny(key, ".["))] {
			known[key] = true
		}
	}
	section := regexp.MustCompile(`^(server|control|redis|database|breaker|fallback|limits|hotspot|defaults|skus|activities|upstreams|` +
		`routes|answers|check|reconcile|events|retention|log)[.\[][^*\s]+$`)
	named := regexp.MustCompile(`^(upstreams)\.[a-z]+\.`)
	found := 0
	for _, p := range pages(t) {
		for _, word := range p.inlineCode() {
			if !section.MatchString(word) || strings.Contains(word, ".go") {
				continue
			}
			found++
			if key := named.ReplaceAllString(strings.ReplaceAll(word, "<sku>", "<name>"), "$1.<name>."); !known[key] {
				t.Errorf("%s names the setting %s, which is not in docs/configuration.md", p.name, word)
			}
		}
	}
	if found < 30 {
		t.Errorf("found only %d settings: is the pattern still right?", found)
	}
}

// The jobs of docs/architecture.md are those that the code runs. One whose name ends with a part that the configuration gives is listed
// with a placeholder there: resolver/<upstream>.
func TestJobsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	run := map[string]bool{}
	for name, file := range code(t).files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "New" {
				if pkg, ok := f.X.(*ast.Ident); ok && pkg.Name == "loop" {
					run[jobName(t, file, call.Args[0])] = true
				}
			}
			return true
		})
	}
	_, rest, _ := strings.Cut(readPage(t, "docs/architecture.md").text, "\n## Jobs\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `?([a-z_]+)(/<[a-z]+>)?`? \\|").FindAllStringSubmatch(section, -1) {
		name := m[1]
		if m[2] != "" {
			name += "/"
		}
		if name == "job" {
			continue
		}
		listed[name] = true
		if !run[name] {
			t.Errorf("docs/architecture.md lists the job %s, the code runs none of that name", name)
		}
	}
	for job := range run {
		if !listed[job] {
			t.Errorf("docs/architecture.md does not list the job %s", job)
		}
	}
}

// jobName is the name that a loop is made with: a literal, or the literal with which a function of the same file begins the name that it
// returns.
func jobName(t *testing.T, file *ast.File, e ast.Expr) string {
	t.Helper()
	if name, ok := literal(e); ok {
		return name
	}
	name := ""
	if call, ok := e.(*ast.CallExpr); ok {
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			name = returnedPrefix(file, f.Sel.Name)
		}
	}
	if name == "" {
		t.Errorf("%s runs a job whose name cannot be read here", file.Name)
	}
	return name
}

// returnedPrefix is the literal on the left of what a function returns as a sum.
func returnedPrefix(file *ast.File, function string) (prefix string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != function {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sum, ok := n.(*ast.BinaryExpr); ok {
				if text, ok := literal(sum.X); ok {
					prefix = text
				}
			}
			return true
		})
	}
	return prefix
}

package archtest

import (
	"errors"
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stockgate/stockgate"

// layers: a package may import packages of lower layers and of its own top folder only. The middle layer's packages do not know each
// other: what they share is in stock, what they need from each other they declare as interfaces.
var layers = map[string]int{
	"stock":      0,
	"luascripts": 1, "ledger": 1, "locks": 1, "fallback": 1, "filters": 1,
	"gateway": 2, "reconcile": 2,
	"config": 3, "main": 4, "bench": 4,
}

// onlyIn: external packages by prefix, and the folders (outside tests) that may import them, with the reason.
var onlyIn = []struct {
	prefix  string
	folders []string
	why     string
}{
	{"github.com/redis/go-redis", []string{"luascripts", "locks", "reconcile/events"}, "one place knows its retries and time-outs"},
	{"github.com/alicebob/miniredis", []string{"luascripts"}, "the embedded Redis is a mode of luascripts"},
	{"github.com/lib/pq", []string{"ledger", "locks", "reconcile/orders", "internal/testservices"}, "the ledger is the only writer"},
	{"modernc.org/sqlite", []string{"ledger", "locks", "reconcile/orders", "examples/orderservice"}, "the ledger is the only writer"},
	{"github.com/valyala/fasthttp", []string{"filters", "gateway", "bench"}, "the core speaks no HTTP"},
	{"go.yaml.in/yaml", []string{"config"}, "one place reads configuration"},
	{"github.com/sony/gobreaker", []string{"fallback", "gateway/breaker"}, "one breaker of Redis nodes, one of upstreams"},
	{"github.com/spf13/cobra", []string{"main"}, "commands live in main"},
	{module + "/config", []string{"main", "config"}, "packages have plain Config structs of their own"},
}

func TestImportsRunOneWay(t *testing.T) {
	for _, pkg := range packages(t) {
		for _, imp := range pkg.imports {
			if problem := wrongImport(pkg.folder, imp); problem != "" {
				t.Errorf("%s imports %s: %s", pkg.folder, imp, problem)
			}
		}
	}
}

// The rules themselves must be able to refuse.
func TestRulesRefuse(t *testing.T) {
	f := func(folder, imp string, allowed bool) {
		t.Helper()
		if got := wrongImport(folder, imp) == ""; got != allowed {
			t.Errorf("%s → %s: allowed = %v, want %v", folder, imp, got, allowed)
		}
	}
	f("stock", module+"/ledger", false)
	f("ledger", module+"/fallback", false)
	f("fallback", module+"/ledger", false)
	f("ledger", module+"/stock", true)
	f("gateway/admission", module+"/ledger", true)
	f("gateway/admission", "github.com/redis/go-redis/v9", false)
	f("gateway", module+"/config", false)
	f("main", module+"/config", true)
	f("filters/lane", module+"/filters", true)
	f("stock", "github.com/valyala/fasthttp", false)
	f("internal/faults", module+"/gateway", false)
	f("internal/faults", module+"/stock", true)
}

func wrongImport(folder, imp string) string {
	for _, rule := range onlyIn {
		if strings.HasPrefix(imp, rule.prefix) && !under(folder, rule.folders) {
			return "only " + strings.Join(rule.folders, ", ") + " may: " + rule.why
		}
	}
	rest, ours := strings.CutPrefix(imp, module+"/")
	if !ours {
		return ""
	}
	from, to := top(folder), top(rest)
	switch {
	case from == to, to == "internal":
		return ""
	case from == "internal" && to == "stock":
		return ""
	case from == "internal":
		return "small bricks import stock at most"
	case layers[to] < layers[from]:
		return ""
	}
	return "imports run one way: stock ← luascripts, ledger, locks, fallback, filters ← gateway, reconcile ← main"
}

func under(folder string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool { return folder == a || strings.HasPrefix(folder, a+"/") })
}

func top(folder string) string { return strings.SplitN(folder, "/", 2)[0] }

type pkg struct {
	folder  string // below the module; "main" for the root
	imports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var found []pkg
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "tools" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(path, 0)
		var none *build.NoGoError
		if errors.As(err, &none) {
			return nil
		}
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, path)
		if folder == "." {
			folder = "main"
		}
		found = append(found, pkg{folder: filepath.ToSlash(folder), imports: p.Imports})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 5 {
		t.Fatalf("found only %d packages below %s", len(found), root)
	}
	return found
}

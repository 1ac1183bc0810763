package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// page is a page of documentation.
type page struct {
	name string // from the root, with slashes
	text string
}

// generated pages are held by the tests of what writes them.
var generated = []string{"docs/configuration.md"}

// pages are all pages that people write, also those that lie beside the code.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, name := range files(t, ".md") {
		if !slices.Contains(generated, name) {
			all = append(all, page{name, read(t, name)})
		}
	}
	if len(all) < 10 {
		t.Fatalf("found only %d pages below %s", len(all), root)
	}
	return all
}

// handbook is the pages at the root and below docs: what is written in the glossary's words, in short lines.
func handbook(t *testing.T) []page {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(p page) bool { return strings.Contains(p.name, "/") && !strings.HasPrefix(p.name, "docs/") })
}

// readPage is one page by its name.
func readPage(t *testing.T, name string) page {
	t.Helper()
	return page{name, read(t, name)}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files are the names of all files with an ending, from the root, with slashes.
func files(t *testing.T, ending string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(d.Name(), ending) {
			rel, _ := filepath.Rel(root, name)
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// source is the repository's Go code, parsed once.
type source struct {
	files map[string]*ast.File // by name from the root
}

var parsed = sync.OnceValues(func() (*source, error) {
	s := &source{files: map[string]*ast.File{}}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "tools") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		s.files[filepath.ToSlash(rel)] = file
		return nil
	})
	return s, err
})

func code(t *testing.T) *source {
	t.Helper()
	s, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// functions are the names of the functions and methods declared in a file.
func (s *source) functions(name string) []string {
	var names []string
	file := s.files[name]
	if file == nil {
		return nil
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

// tests are the names of all test functions, each with its file.
func (s *source) tests() map[string]string {
	found := map[string]string{}
	for name := range s.files {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, f := range s.functions(name) {
			if strings.HasPrefix(f, "Test") && f != "TestMain" {
				found[f] = name
			}
		}
	}
	return found
}

// names reports whether a test file of the folder has the text of a subtest, in which go test writes blanks as underscores.
func (s *source) names(folder, subtest string) bool {
	found := false
	for name, file := range s.files {
		if path.Dir(name) != folder || !strings.HasSuffix(name, "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				text, isText := literal(e)
				found = found || isText && strings.ReplaceAll(text, " ", "_") == subtest
			}
			return !found
		})
	}
	return found
}

var (
	fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	inline = regexp.MustCompile("`([^`\n]+)`")
)

// block is a fenced block of a page.
type block struct{ language, text string }

func (p page) blocks(language string) []block {
	var all []block
	for _, m := range fenced.FindAllStringSubmatch(p.text, -1) {
		if m[1] == language {
			all = append(all, block{m[1], m[2]})
		}
	}
	return all
}

// prose is the page without fenced blocks.
func (p page) prose() string { return fenced.ReplaceAllString(p.text, "") }

// inlineCode is everything between backticks, outside of fenced blocks.
func (p page) inlineCode() []string {
	var all []string
	for _, m := range inline.FindAllStringSubmatch(p.prose(), -1) {
		all = append(all, m[1])
	}
	return all
}

// beside resolves a path that the page names relative to itself.
func (p page) beside(target string) string { return path.Join(path.Dir(p.name), target) }

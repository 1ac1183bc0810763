package config

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const referenceFile = "../docs/configuration.md"

// referenceHead stands above the generated tables.
const referenceHead = `# Configuration

<!-- Written by "make docs" from the fields of package config. Change them, not this file. -->

stockgate reads one YAML file: ` + "`stockgate serve --config stockgate.yaml`" + `. ` + "`stockgate validate --config stockgate.yaml`" + ` says everything that is
wrong with it at once, with line and key. [examples/minimal.yaml](../examples/minimal.yaml) is a file to begin with. [example.yaml](../example.yaml)
shows every kind of entry in use, also those that this version does not act on yet.

- **Durations** are written 250ms, 2s, 15m, 1h30m, 90d. **Rates** are written 500/s, 30/m, 10/h. **Sizes** are written 512B, 64KiB, 2MiB, 1GiB.
- **References**: any value may hold ` + "`${NAME}`" + ` (an environment variable) or ` + "`${file:/path}`" + ` (a file's text; one newline at its end is cut). Quote it:
  ` + "`\"${NAME}\"`" + `. Write ` + "`$${`" + ` for ` + "`${`" + ` itself. One that is not there stops serve; validate warns of it, or with
  ` + "`--references`" + ` calls it a problem. What a reference held is never printed.
- **Absent**: an absent value has its default; absent lists and maps are empty. A section without keys is absent; a value without text is a
  problem. Unknown keys and keys that stand twice are problems.
- **Rates of 0**: in ` + "`hotspot`" + ` no limit by rate. Elsewhere they are refused: a rate of 0 would let nobody pass.
- **Sources** (` + "`routes[].admit`" + `) are ` + "`body.<path of keys and indices>`, `header.<name>`, `query.<name>`, `path.<n from 1>`, `form.<name>`" + `, one or a list of
  them: the first that is present counts, and all that are present must agree.
- **Changes** of a key are used by a reload, at once by this replica or by all, or by the next start only. ` + "`stockgate validate --config NEW --diff OLD`" + ` says it
  for each key that differs. A reload that would change a key of the last kind changes nothing.
- **Ranges** of texts are lengths in bytes, those of lists and maps numbers of entries.

Not everything is built yet. ` + "`stockgate validate`" + ` also lists what runs in another way than written, and what ` + "`stockgate serve`" + ` refuses to start with.
`

// reference writes docs/configuration.md: one table per section, one row per key.
type reference struct {
	out  bytes.Buffer
	docs map[string]string // comments, by Type and by Type.Field
}

func TestReferenceIsCurrent(t *testing.T) {
	r := &reference{docs: parseDocs(t)}
	r.out.WriteString(referenceHead)
	r.section(reflect.TypeFor[Config](), "", "")
	if *update {
		if err := os.WriteFile(referenceFile, r.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil || !bytes.Equal(got, r.out.Bytes()) {
		t.Errorf("%s is not what the fields of package config say (%v): run make docs", referenceFile, err)
	}
}

// Every key has a text, or a section of its own that has one.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	docs := parseDocs(t)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if docs[typ.Name()] == "" {
			t.Errorf("type %s has no comment", typ.Name())
		}
		for _, f := range fieldsOf(typ) {
			sub, _ := subsection(typ.Field(f.index).Type)
			if sub != nil {
				walk(sub)
			}
			if sub == nil && docs[typ.Name()+"."+typ.Field(f.index).Name] == "" {
				t.Errorf("%s.%s has no comment", typ.Name(), typ.Field(f.index).Name)
			}
			if f.key == "" {
				t.Errorf("%s.%s has no yaml tag", typ.Name(), typ.Field(f.index).Name)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}

// parseDocs reads the comments of the package's types and fields.
func parseDocs(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				collectDocs(docs, g)
			}
		}
	}
	return docs
}

func collectDocs(docs map[string]string, g *ast.GenDecl) {
	spec := g.Specs[0].(*ast.TypeSpec)
	docs[spec.Name.Name] = oneLine(g.Doc.Text())
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		for _, n := range f.Names {
			docs[spec.Name.Name+"."+n.Name] = oneLine(f.Doc.Text())
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// section writes the scalars of a struct as a table, then its sections.
func (r *reference) section(t reflect.Type, path string, effect Effect) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
		fmt.Fprintf(&r.out, "\n## %s\n\n%s\n", title, r.text(t))
	} else {
		fmt.Fprintf(&r.out, "\n## %s\n", title)
	}
	r.table(t, path, effect)
	for _, f := range fieldsOf(t) {
		if sub, suffix := subsection(t.Field(f.index).Type); sub != nil {
			if f.brackets {
				suffix = "[<name>]"
			}
			r.section(sub, under(path, f.key)+suffix, cmp.Or(f.reload, effect))
		}
	}
}

// text is a type's comment with its name dropped: "Redis turns away …" → "Turns away …", "Log is the …" → "The …".
func (r *reference) text(t reflect.Type) string {
	s := strings.TrimPrefix(strings.TrimPrefix(r.docs[t.Name()], t.Name()+" "), "is ")
	return strings.ToUpper(s[:1]) + s[1:]
}

// effectTexts say in the reference when a change of a key is used.
var effectTexts = map[Effect]string{EffectLive: "reload", EffectRules: "reload, all replicas", EffectRestart: "restart"}

func (r *reference) table(t reflect.Type, path string, effect Effect) {
	head := "\n| key | default | allowed | change | meaning |\n| --- | --- | --- | --- | --- |\n"
	for _, f := range fieldsOf(t) {
		sf := t.Field(f.index)
		if isSection(sf.Type) {
			continue
		}
		r.out.WriteString(head)
		head = ""
		fmt.Fprintf(&r.out, "| `%s` | %s | %s | %s | %s |\n", under(path, f.key), shownDefault(f, sf.Type), cell(allowed(f, sf.Type)),
			effectTexts[cmp.Or(f.reload, effect)], cell(r.docs[t.Name()+"."+sf.Name]))
	}
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(s)
}

// subsection is the struct that a key leads into, and what its path gets besides.
func subsection(t reflect.Type) (reflect.Type, string) {
	switch {
	case isSection(t):
		return t, ""
	case t.Kind() == reflect.Pointer:
		return t.Elem(), ""
	case t.Kind() == reflect.Slice && isSection(t.Elem()):
		return t.Elem(), "[]"
	case t.Kind() == reflect.Map:
		return t.Elem(), ".<name>"
	}
	return nil, ""
}

func shownDefault(f field, t reflect.Type) string {
	switch {
	case f.required:
		return "required"
	case f.inherit != "":
		return "that of `" + f.inherit + "`"
	case f.def != "":
		return "`" + f.def + "`"
	case t.Kind() == reflect.String:
		return "empty"
	}
	return "none"
}

// allowed is unit and range of a key.
func allowed(f field, t reflect.Type) string {
	kind := kindText(t)
	if f.oneof != "" {
		return strings.Join(strings.Fields(f.oneof), ", ")
	}
	if f.bounds == "" {
		return kind
	}
	bs, err := parseBounds(f.bounds, t)
	if err != nil {
		return err.Error()
	}
	text := rangeText(bs)
	switch {
	case t.Kind() == reflect.String:
		text += " bytes"
	case byLength(t):
		text += " entries"
	}
	return kind + ", " + text
}

func kindText(t reflect.Type) string {
	switch {
	case t == timeType:
		return "moment, RFC 3339"
	case t == reflect.TypeFor[Duration](), t == reflect.TypeFor[Rate](), t == reflect.TypeFor[Size](), t == reflect.TypeFor[Secret](),
		t == reflect.TypeFor[Pattern](), t == reflect.TypeFor[Source](), t == reflect.TypeFor[Network]():
		return strings.ToLower(t.Name())
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true, false"
	case reflect.Int, reflect.Int64:
		return "whole number"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		if isSection(t.Elem()) {
			return "list"
		}
		return "list of " + kindText(t.Elem())
	case reflect.Map:
		return "map by name"
	case reflect.Pointer:
		return "section"
	}
	return "text"
}

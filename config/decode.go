package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nodesMax bounds how many values a file may expand to: aliases of aliases multiply.
const nodesMax = 1_000_000

// decoder lays the values of YAML nodes over a Config. It goes on after a mistake, so that all are found.
type decoder struct {
	options  Options
	root     reflect.Value
	origin   *origin
	problems Problems
	nodes    int
}

func decode(file string, node *yaml.Node, o Options) (*Config, Problems) {
	c := Default()
	c.origin = newOrigin(file)
	if node != nil {
		d := &decoder{options: o, root: reflect.ValueOf(c).Elem(), origin: c.origin}
		d.value(node, node.Line, d.root, "", field{})
		return c, d.problems
	}
	return c, nil
}

// fail notes a problem and that the key keeps no value of the file.
func (d *decoder) fail(line int, key, rule, value string) {
	d.origin.broken[key] = true
	d.note(line, key, rule, value)
}

func (d *decoder) note(line int, key, rule, value string) {
	if ref, ok := d.origin.refs[key]; ok && value != "" {
		value = quote(ref)
	}
	d.problems = append(d.problems, Problem{File: d.origin.file, Line: line, Key: key, Rule: rule, Value: value})
}

// value lays a node over dst, whose key is named in the given line.
func (d *decoder) value(n *yaml.Node, line int, dst reflect.Value, key string, f field) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.nodes++; d.nodes > nodesMax {
		if d.nodes == nodesMax+1 {
			d.fail(line, key, fmt.Sprintf("the file has more than %d values", nodesMax), "")
		}
		return
	}
	if key != "" {
		d.origin.lines[key] = line
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.fail(line, key, "must not have a YAML tag", quote(n.Tag))
		return
	}
	switch {
	case isNull(n):
		d.null(line, dst, key)
	case dst.Kind() == reflect.Pointer:
		d.pointer(n, line, dst, key, f)
	case isSection(dst.Type()):
		d.section(n, line, dst, key)
	case dst.Kind() == reflect.Map:
		d.entries(n, line, dst, key, f)
	case dst.Kind() == reflect.Slice:
		d.elements(n, line, dst, key, f)
	default:
		d.scalar(n, line, dst, key, f)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// null is what a section has whose keys are all commented out: absent. For a scalar it is more likely a value that was forgotten.
func (d *decoder) null(line int, dst reflect.Value, key string) {
	switch {
	case isSection(dst.Type()), dst.Kind() == reflect.Map, dst.Kind() == reflect.Slice:
		delete(d.origin.lines, key)
	case dst.Kind() == reflect.Pointer: // admit without keys must not quietly turn a guarded route into an open one
		d.fail(line, key, "must have keys; remove it if it is not meant", "")
	default:
		d.fail(line, key, `must have a value; remove the key for its default, or write "" for none`, "")
	}
}

func (d *decoder) pointer(n *yaml.Node, line int, dst reflect.Value, key string, f field) {
	made := reflect.New(dst.Type().Elem())
	fillSection(d.root, made.Elem())
	d.value(n, line, made.Elem(), key, f)
	dst.Set(made)
}

// section reads the keys of a mapping in the order in which the struct declares them, for some inherit from those above.
func (d *decoder) section(n *yaml.Node, line int, dst reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(line, path, "must be a mapping of keys", kindName(n))
		return
	}
	fields := fieldsOf(dst.Type())
	pairs := d.pairs(n, path)
	for _, p := range pairs {
		if _, ok := fieldNamed(fields, p.name); !ok {
			d.note(p.line, under(path, shorten(p.name)), unknownKey(p.name, fields), "")
		}
	}
	for _, f := range fields {
		for _, p := range pairs {
			if p.name == f.key {
				d.value(p.value, p.line, dst.Field(f.index), under(path, f.key), f)
			}
		}
	}
}

// pair is one key of a mapping.
type pair struct {
	name  string
	line  int
	value *yaml.Node
}

// pairs lists the keys of a mapping, the first of each name; the others are problems.
func (d *decoder) pairs(n *yaml.Node, path string) []pair {
	var ps []pair
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" || k.Style&yaml.TaggedStyle != 0 {
			d.note(k.Line, path, "must have plain names as keys, without merges and tags", "")
			continue
		}
		if at, ok := first[k.Value]; ok {
			d.note(k.Line, under(path, shorten(k.Value)), fmt.Sprintf("stands twice, first in line %d", at), "")
			continue
		}
		first[k.Value] = k.Line
		ps = append(ps, pair{name: k.Value, line: k.Line, value: n.Content[i+1]})
	}
	return ps
}

// entries reads a map of named sections.
func (d *decoder) entries(n *yaml.Node, line int, dst reflect.Value, path string, f field) {
	if n.Kind != yaml.MappingNode {
		d.fail(line, path, "must be a mapping of names", kindName(n))
		return
	}
	dst.Set(reflect.MakeMap(dst.Type()))
	for _, p := range d.pairs(n, path) {
		entry := reflect.New(dst.Type().Elem()).Elem()
		fillSection(d.root, entry)
		d.value(p.value, p.line, entry, entryPath(path, p.name, f), field{})
		dst.SetMapIndex(reflect.ValueOf(p.name), entry)
	}
}

// elements reads a list, or one value where a list of one may be written so.
func (d *decoder) elements(n *yaml.Node, line int, dst reflect.Value, path string, f field) {
	if n.Kind == yaml.ScalarNode && f.single {
		dst.Set(reflect.MakeSlice(dst.Type(), 1, 1))
		d.value(n, line, dst.Index(0), path, field{})
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.fail(line, path, "must be a list", kindName(n))
		return
	}
	dst.Set(reflect.MakeSlice(dst.Type(), 0, len(n.Content)))
	for i, item := range n.Content {
		element := reflect.New(dst.Type().Elem()).Elem()
		if isSection(element.Type()) {
			fillSection(d.root, element)
		}
		d.value(item, item.Line, element, d.origin.enter(path, i, labelIn(item, element.Type())), field{})
		dst.Set(reflect.Append(dst, element))
	}
}

// labelIn finds the label of a listed section before it is read, so that its problems can be named by it.
func labelIn(n *yaml.Node, t reflect.Type) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode || !isSection(t) {
		return ""
	}
	label := fieldsOf(t)[0].key
	for i := 0; i+1 < len(n.Content); i += 2 {
		if v := n.Content[i+1].Value; n.Content[i].Value == label && !strings.Contains(v, "${") {
			return v
		}
	}
	return "" // also for what a reference holds: it is not to be shown
}

func (d *decoder) scalar(n *yaml.Node, line int, dst reflect.Value, key string, f field) {
	if n.Kind != yaml.ScalarNode {
		d.fail(line, key, "must be a single value", kindName(n))
		return
	}
	text, found, err := d.options.expand(n.Value)
	if found {
		d.origin.refs[key] = n.Value
	}
	if err != nil {
		d.unresolved(line, key, err)
		return
	}
	if err := setScalar(dst, text); err != nil {
		rule := err.Error()
		if errors.Is(err, errRate) && strings.HasPrefix(f.bounds, "0|") {
			rule += ", or 0"
		}
		d.fail(line, key, rule, d.shown(dst, text))
	}
}

// unresolved handles a reference that led nowhere.
func (d *decoder) unresolved(line int, key string, err error) {
	var missing missingError
	if !d.options.AllowMissing || !errors.As(err, &missing) {
		d.fail(line, key, err.Error(), "")
		return
	}
	d.origin.broken[key] = true
	d.origin.missing = append(d.origin.missing, Problem{
		File: d.origin.file, Line: line, Key: key, Rule: err.Error() + ", the key was not checked",
	})
}

// shown is the value of a problem; note replaces it if it came through a reference.
func (d *decoder) shown(dst reflect.Value, text string) string {
	if dst.Type() == reflect.TypeFor[Secret]() {
		return ""
	}
	return quote(text)
}

// kindName tells what stands where something else must. Of a single value it tells no more: it may be a secret.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return "a single value"
}

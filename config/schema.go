package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// field is what the tags of a struct field say about its key.
type field struct {
	index    int
	key      string
	def      string // default as text; lists separate by comma
	inherit  string // key path whose value is taken instead of a default
	oneof    string // allowed values
	bounds   string // range
	required bool   // there is no default and it must be named
	single   bool   // a list that may be written as one value
	reload   Effect // when a change is used; "": as the section around it says
	brackets bool   // a map whose entries are written as key[entry], for they may hold dots
}

// fieldsOf lists the keys of a struct in the order of declaration.
func fieldsOf(t reflect.Type) []field {
	var fs []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		fs = append(fs, field{
			index: i, key: key, def: f.Tag.Get("default"), inherit: f.Tag.Get("inherit"), oneof: f.Tag.Get("oneof"),
			bounds: f.Tag.Get("range"), required: f.Tag.Get("required") != "", single: f.Tag.Get("single") != "",
			brackets: f.Tag.Get("brackets") != "", reload: Effect(f.Tag.Get("reload")),
		})
	}
	return fs
}

func fieldNamed(fs []field, key string) (field, bool) {
	for _, f := range fs {
		if f.key == key {
			return f, true
		}
	}
	return field{}, false
}

var timeType = reflect.TypeFor[time.Time]()

// isSection reports whether t is a struct of keys rather than a value that is written as one text.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != timeType && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// under joins a key to the path of what it stands in.
func under(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// entryPath is the path of a map's entry.
func entryPath(path, name string, f field) string {
	name = shorten(name)
	if f.brackets {
		return path + "[" + name + "]"
	}
	return under(path, name)
}

// elementPath is the path of a list's element: by its label, if that is a short plain name, else by its index from 0.
func elementPath(path string, i int, label string) string {
	const labelMax = 64
	if label == "" || len(label) > labelMax || strings.ContainsFunc(label, func(r rune) bool { return r <= ' ' || r > '~' || r == ']' }) {
		return fmt.Sprintf("%s[%d]", path, i)
	}
	return path + "[" + label + "]"
}

// labelOf is the label of a listed value: the first field of a section, "" for anything else.
func labelOf(v reflect.Value) string {
	if !isSection(v.Type()) {
		return ""
	}
	return v.Field(0).String()
}

// fillDefaults gives every scalar and every list of scalars its default or what it inherits. Lists and maps of sections stay empty.
func fillDefaults(c *Config) {
	root := reflect.ValueOf(c).Elem()
	fillSection(root, root)
}

// fillSection fills v, a section of root, whose sections above v are filled already.
func fillSection(root, v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		dst := v.Field(f.index)
		switch {
		case isSection(dst.Type()):
			fillSection(root, dst)
		case f.inherit != "":
			dst.Set(lookUp(root, f.inherit))
		case f.def != "":
			mustSet(dst, f)
		}
	}
}

// mustSet sets a default. A default that cannot be read is a mistake in this package, which its tests find.
func mustSet(dst reflect.Value, f field) {
	texts := []string{f.def}
	if dst.Kind() == reflect.Slice {
		texts = strings.Split(f.def, ",")
		dst.Set(reflect.MakeSlice(dst.Type(), len(texts), len(texts)))
	}
	for i, text := range texts {
		v := dst
		if dst.Kind() == reflect.Slice {
			v = dst.Index(i)
		}
		if err := setScalar(v, text); err != nil {
			panic(fmt.Sprintf("BUG: default of key %s: %v", f.key, err))
		}
	}
}

// lookUp finds the value of a key path through sections only.
func lookUp(root reflect.Value, path string) reflect.Value {
	for key := range strings.SplitSeq(path, ".") {
		f, ok := fieldNamed(fieldsOf(root.Type()), key)
		if !ok {
			panic("BUG: no key " + path)
		}
		root = root.Field(f.index)
	}
	return root
}

package config

import "strings"

// origin remembers where the keys of a Config stand in its file. A nil origin, that of a Config made in Go, knows nothing.
type origin struct {
	file     string
	lines    map[string]int    // by key path; only keys that are named in the file
	refs     map[string]string // values as written, for those that hold ${…}
	broken   map[string]bool   // keys that already have a Problem and were not set
	elements map[string]string // paths of list elements, by the path with their index
	files    []string          // that references named
	missing  Problems          // variables that Options.AllowMissing let pass
}

func newOrigin(file string) *origin {
	return &origin{file: file, lines: map[string]int{}, refs: map[string]string{}, broken: map[string]bool{}, elements: map[string]string{}}
}

// named reports whether the file names the key.
func (o *origin) named(key string) bool { return o != nil && o.lines[key] != 0 }

// line is that of the key, else that of the nearest key around it, else 0.
func (o *origin) line(key string) int {
	for key != "" {
		if n := o.lines[key]; n != 0 {
			return n
		}
		key = parent(key)
	}
	return 0
}

// inBroken reports whether the key or one around it could not be read.
func (o *origin) inBroken(key string) bool {
	for ; o != nil && key != ""; key = parent(key) {
		if o.broken[key] {
			return true
		}
	}
	return false
}

// place fills in file and line, and hides a value that came in through ${…}: it may be a secret in the wrong place.
func (o *origin) place(p Problem) Problem {
	if o == nil {
		return p
	}
	p.File, p.Line = o.file, o.line(p.Key)
	if ref, ok := o.refs[p.Key]; ok && p.Value != "" {
		p.Value = quote(ref)
	}
	return p
}

// enter gives the element of a list its path: by its label, but by its index if another element has the same. It remembers it, for
// the label itself may turn out to be unreadable or come in through ${…}.
func (o *origin) enter(path string, i int, label string) string {
	byIndex, key := elementPath(path, i, ""), elementPath(path, i, label)
	if o.lines[key] != 0 {
		key = byIndex
	}
	o.elements[byIndex] = key
	return key
}

// element is the path of a list's element: the one that it was read under, else one by its label.
func (o *origin) element(path string, i int, label string) string {
	if o != nil {
		if key, ok := o.elements[elementPath(path, i, "")]; ok {
			return key
		}
	}
	return elementPath(path, i, label)
}

// parent drops the last part of a key path: limits[a.b].rate → limits[a.b] → limits → "".
func parent(key string) string {
	if strings.HasSuffix(key, "]") {
		if i := strings.LastIndexByte(key, '['); i >= 0 {
			return key[:i]
		}
	}
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

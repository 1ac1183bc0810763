package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Effect is when a changed key is used. It is the tag reload of the field, or of the section around it.
type Effect string

// The effects.
const (
	EffectLive    Effect = "live"    // at once, by this replica
	EffectRules   Effect = "rules"   // at once, by all replicas: it is stored in the database with a version
	EffectRestart Effect = "restart" // by the next start
)

// Change is a key whose value differs between two configurations.
type Change struct {
	Key    string
	Effect Effect
	// Old and New are the values as a file would have them; "" is one that is absent. A secret is hidden, and of a value that came in
	// through a reference the reference is shown: both may look the same.
	Old, New string
	// Added and Removed: the key is in one of the two alone.
	Added, Removed bool
}

// Changes lists what a reload from old to next would change, by key. The order of a list counts; so a list may be a key, too.
func Changes(old, next *Config) []Change {
	a, b := leavesOf(old), leavesOf(next)
	var changes []Change
	for _, key := range slices.Sorted(maps.Keys(union(a, b))) {
		was, had := a[key]
		is, has := b[key]
		switch {
		case was.order != nil || is.order != nil:
			if !slices.Equal(common(was.order, is.order), common(is.order, was.order)) {
				changes = append(changes, Change{Key: key, Effect: is.effect, Old: strings.Join(was.order, ", "), New: strings.Join(is.order, ", ")})
			}
		case had != has || !reflect.DeepEqual(was.value, is.value):
			changes = append(changes, Change{Key: key, Effect: cmp.Or(is.effect, was.effect), Old: was.text, New: is.text, Added: !had, Removed: !has})
		}
	}
	return changes
}

// NeedRestart are the keys of changes that only the next start uses.
func NeedRestart(changes []Change) []string {
	var keys []string
	for _, c := range changes {
		if c.Effect == EffectRestart {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// Version is a short name for all values but secrets: replicas that run the same have the same, whatever their files look like.
func (c *Config) Version() string {
	sum := sha256.Sum256([]byte(c.String()))
	return hex.EncodeToString(sum[:6])
}

// Line is where a key stands in the file, or the nearest key around it; 0: in no file.
func (c *Config) Line(key string) int {
	if c.origin == nil {
		return 0
	}
	return c.origin.line(key)
}

// References are the files that ${file:…} names, sorted.
func (c *Config) References() []string {
	if c.origin == nil {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(c.origin.files)))
}

// leaf is a value of a Config, or the order of a list of sections.
type leaf struct {
	value  any
	text   string
	effect Effect
	order  []string // of a list of sections: the labels
}

type leaves map[string]leaf

func leavesOf(c *Config) leaves {
	all := leaves{}
	all.section(reflect.ValueOf(c).Elem(), "", "", c.origin)
	return all
}

func (all leaves) section(v reflect.Value, path string, effect Effect, o *origin) {
	for _, f := range fieldsOf(v.Type()) {
		all.add(v.Field(f.index), under(path, f.key), cmp.Or(f.reload, effect), f, o)
	}
}

func (all leaves) add(v reflect.Value, key string, effect Effect, f field, o *origin) {
	t := v.Type()
	switch {
	case isSection(t):
		all.section(v, key, effect, o)
	case t.Kind() == reflect.Pointer:
		if !v.IsNil() {
			all.section(v.Elem(), key, effect, o)
		}
	case t.Kind() == reflect.Map:
		for _, name := range v.MapKeys() {
			all.section(v.MapIndex(name), entryPath(key, name.String(), f), effect, o)
		}
	case t.Kind() == reflect.Slice && isSection(t.Elem()):
		all.list(v, key, effect, o)
	default:
		all[key] = leaf{value: v.Interface(), text: o.written(key, v), effect: effect}
	}
}

func (all leaves) list(v reflect.Value, key string, effect Effect, o *origin) {
	order := make([]string, 0, v.Len())
	for i := range v.Len() {
		path := o.element(key, i, labelOf(v.Index(i)))
		order = append(order, strings.TrimSuffix(strings.TrimPrefix(path, key+"["), "]"))
		all.section(v.Index(i), path, effect, o)
	}
	all[key] = leaf{order: order, effect: effect}
}

// written is a value as a file would have it, or the reference that it came in through.
func (o *origin) written(key string, v reflect.Value) string {
	if o != nil {
		if ref, ok := o.refs[key]; ok {
			return ref
		}
	}
	if v.Kind() != reflect.Slice {
		return textOf(v)
	}
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = textOf(v.Index(i))
		if o != nil {
			texts[i] = cmp.Or(o.refs[elementPath(key, i, "")], texts[i])
		}
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func union(a, b leaves) leaves {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// common are those of list that are in other, too.
func common(list, other []string) []string {
	var both []string
	for _, name := range list {
		if slices.Contains(other, name) {
			both = append(both, name)
		}
	}
	return both
}

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// checker collects what is wrong with a Config.
type checker struct {
	*Config
	problems Problems
	bad      map[string]bool // keys that are wrong by themselves; rules over several keys leave them alone
}

// Validate says everything that is wrong with a Config, in the order of its file; nothing if it may be used. It reads no files and
// changes nothing. Load has called it already; a Config made in Go needs it.
func Validate(c *Config) Problems {
	ch := &checker{Config: c, bad: map[string]bool{}}
	ch.section(reflect.ValueOf(c).Elem(), "")
	for _, p := range ch.problems {
		ch.bad[p.Key] = true
	}
	ch.checkListeners()
	ch.checkRedis()
	ch.checkDatabase()
	ch.checkTraffic()
	ch.checkJWT()
	ch.checkSales()
	ch.checkUpstreams()
	ch.checkRoutes()
	ch.checkTimes()
	ch.checkAnswers()
	ch.checkReconcile()
	return ch.problems.sorted()
}

// fail notes a problem of a key, unless the key or one of those that the rule also depends on has one already that makes its value
// not the one that the user meant.
func (ch *checker) fail(key, rule, value string, also ...string) {
	if ch.spoilt(key) || slices.ContainsFunc(also, ch.spoilt) {
		return
	}
	ch.problems = append(ch.problems, ch.origin.place(Problem{Key: key, Rule: rule, Value: value}))
}

// spoilt reports whether a key could not be read or is wrong by itself.
func (ch *checker) spoilt(key string) bool { return ch.origin.inBroken(key) || ch.bad[key] }

// failIf notes a problem if broken holds.
func (ch *checker) failIf(broken bool, key, rule, value string, also ...string) {
	if broken {
		ch.fail(key, rule, value, also...)
	}
}

// inherited reports whether a key of a file has its value from another one, where a problem of it is noted.
func (ch *checker) inherited(key string) bool { return ch.origin != nil && !ch.origin.named(key) }

// section checks what the tags say about each key by itself.
func (ch *checker) section(v reflect.Value, path string) {
	for _, f := range fieldsOf(v.Type()) {
		ch.key(v.Field(f.index), under(path, f.key), f)
	}
}

func (ch *checker) key(v reflect.Value, path string, f field) {
	switch {
	case f.required && v.IsZero() && !ch.origin.named(path):
		ch.fail(path, "is required", "")
		return
	case isSection(v.Type()):
		ch.section(v, path)
		return
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			ch.section(v.Elem(), path)
		}
		return
	}
	ch.oneOf(v, path, f)
	ch.inRange(v, path, f)
	ch.inside(v, path, f)
}

// oneOf lets the empty text pass where a key has neither default nor something to inherit.
func (ch *checker) oneOf(v reflect.Value, path string, f field) {
	if f.oneof == "" || (v.String() == "" && f.def == "" && f.inherit == "") {
		return
	}
	allowed := strings.Fields(f.oneof)
	ch.failIf(!slices.Contains(allowed, v.String()), path, "must be "+strings.Join(allowed, " | "), quote(v.String()))
}

func (ch *checker) inRange(v reflect.Value, path string, f field) {
	if f.bounds == "" {
		return
	}
	bs, err := parseBounds(f.bounds, v.Type())
	if err != nil {
		panic(fmt.Sprintf("BUG: key %s: %v", path, err)) // a mistake in a tag, which the tests find
	}
	if within(measure(v), bs) {
		return
	}
	value := textOf(v)
	switch {
	case v.Kind() == reflect.String:
		value = fmt.Sprintf("%d bytes long", v.Len())
	case byLength(v.Type()):
		value = fmt.Sprintf("%d entries long", v.Len())
	}
	ch.fail(path, rangeRule(v.Type(), bs), value)
}

// inside goes on with the entries of maps and lists of sections.
func (ch *checker) inside(v reflect.Value, path string, f field) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			if e := v.Index(i); isSection(e.Type()) {
				ch.section(e, ch.origin.element(path, i, labelOf(e)))
			}
		}
	case reflect.Map:
		for _, name := range sortedNames(v) {
			ch.section(v.MapIndex(reflect.ValueOf(name)), entryPath(path, name, f))
		}
	}
}

func sortedNames(v reflect.Value) []string {
	names := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return names
}

// unique notes the names that stand more than once in a list, and those that are not plain.
func (ch *checker) unique(list, key string, names []string) {
	first := map[string]int{}
	for i, name := range names {
		path := under(ch.origin.element(list, i, name), key)
		if name == "" {
			continue // required, or noted as such
		}
		ch.failIf(!isName(name), path, "must be of A-Z a-z 0-9 . _ -", quote(name))
		if at, ok := first[name]; ok {
			ch.fail(path, fmt.Sprintf("must be unique, %s[%d] has the same", list, at), quote(name))
			continue
		}
		first[name] = i
	}
}

// isName reports whether s may name something in answers, metrics and key paths.
func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isAlphanumeric(s[i]) && s[i] != '.' && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return s != ""
}

// mapped gives what f makes of each element.
func mapped[T, R any](list []T, f func(T) R) []R {
	out := make([]R, len(list))
	for i, e := range list {
		out[i] = f(e)
	}
	return out
}

package conformance

import "strings"

// cut slices text around the only place where part stands; found is false if it stands nowhere or more than once.
func cut(text, part string) (before, after string, found bool) {
	if part == "" || strings.Count(text, part) != 1 {
		return "", "", false
	}
	return strings.Cut(text, part)
}

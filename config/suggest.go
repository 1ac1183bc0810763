package config

import "strings"

// shorten bounds a name from the file that is shown as part of a key path.
func shorten(name string) string {
	if len(name) > shownBytesMax {
		return strings.ToValidUTF8(name[:shownBytesMax], "") + "…"
	}
	return name
}

// unknownKey is the rule for a key that does not exist, with the nearest one that does.
func unknownKey(name string, fields []field) string {
	return "unknown key" + perhaps(nearest(name, mapped(fields, func(f field) string { return f.key })))
}

func perhaps(meant string) string {
	if meant == "" {
		return ""
	}
	return ", perhaps " + meant + " is meant"
}

// nearest is the known name that a name was probably meant to be, "" if there is none.
func nearest(name string, known []string) string {
	const tooFar = 3
	best, found := tooFar, ""
	for _, k := range known {
		if n := distance(name, k); n < best {
			best, found = n, k
		}
	}
	if best >= len(found) {
		return ""
	}
	return found
}

// distance is the number of bytes to insert, delete or replace between a and b (Levenshtein), for names of at most 64 bytes.
func distance(a, b string) int {
	if len(a) > shownBytesMax {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

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
	const tooFar = 3
	best, nearest := tooFar, ""
	for _, f := range fields {
		if n := distance(name, f.key); n < best {
			best, nearest = n, f.key
		}
	}
	if nearest == "" || best >= len(nearest) {
		return "unknown key"
	}
	return "unknown key, perhaps " + nearest + " is meant"
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

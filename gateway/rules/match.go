package rules

import (
	"slices"
	"strings"
)

// matcher finds the patterns that match a SKU: one look-up for the SKU itself, and one for each length that a prefix has. So ten
// thousand rules cost what one does.
type matcher struct {
	exact    map[string][]int // what was added under a SKU
	prefixes map[string][]int // what was added under name*, by name
	lengths  []int            // of the prefixes, rising, each once
}

func newMatcher() *matcher {
	return &matcher{exact: map[string][]int{}, prefixes: map[string][]int{}}
}

// add notes that a pattern leads to n.
func (m *matcher) add(pattern string, n int) {
	prefix, star := strings.CutSuffix(pattern, "*")
	if !star {
		m.exact[pattern] = append(m.exact[pattern], n)
		return
	}
	m.prefixes[prefix] = append(m.prefixes[prefix], n)
	if at, found := slices.BinarySearch(m.lengths, len(prefix)); !found {
		m.lengths = slices.Insert(m.lengths, at, len(prefix))
	}
}

// visit calls see for all that a matching pattern leads to, in no order; if several patterns lead to the same, once for each.
func (m *matcher) visit(sku string, see func(n int)) {
	for _, n := range m.exact[sku] {
		see(n)
	}
	for _, length := range m.lengths {
		if length > len(sku) {
			return
		}
		for _, n := range m.prefixes[sku[:length]] {
			see(n)
		}
	}
}

package rules

// Mode says what a decision about a SKU does.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // it takes stock, or refuses
	Shadow              // it is only counted, and everything passes
)

// String is enforce or shadow.
func (m Mode) String() string {
	if m == Shadow {
		return "shadow"
	}
	return "enforce"
}

// Mode tells whether a SKU is enforced on a route. A route that the rules do not know is: it may be newer than they are. SKU "" stands
// for an order that cannot be read: it is in shadow only if the whole route is.
func (b *Book) Mode(route, sku string) Mode {
	m, known := b.modes[route]
	switch {
	case known && (m.Shadow || m.Canary <= 0):
		return Shadow
	case sku == "":
		return Enforce
	case known && m.Canary < 100 && int(spread(sku)%100) >= m.Canary:
		return Shadow
	}
	return Enforce
}

// spread is the hash of a SKU by which the canary share is chosen. It must never change: SKUs would change sides in the middle of a
// sale. FNV-1a alone is uneven in its low bits for names that differ in their last byte only, hence the finalizer.
func spread(sku string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := 0; i < len(sku); i++ {
		h = (h ^ uint64(sku[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

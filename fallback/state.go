package fallback

import "github.com/stockgate/stockgate/stock"

// State is what this replica last learned of partition p. It does not block.
func (w *WayBack) State(p int) stock.PartitionState { return (*w.states.Load())[p] }

// AnyAhead reports whether a SKU of any partition sells ahead, or has, as far as learned: also under rules that let none any more. It does
// not block.
func (w *WayBack) AnyAhead() bool {
	for _, s := range *w.states.Load() {
		if s.Ahead {
			return true
		}
	}
	return false
}

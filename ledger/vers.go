package ledger

import (
	"context"
	"maps"
	"slices"

	"github.com/stockgate/stockgate/stock"
)

// RaiseVers raises the ver of each SKU above the one named, which Redis has heard from a database that has lost commits since (restored,
// failed over): no fact of Redis or of a replica's memory is then newer than what the database says. A ver that is above already stays,
// and a SKU that the database does not know is left out. Each SKU's partition must be among those of the leases, which the holder has; it
// fails with ErrFenced if any of them is lost. The SKUs are changed one by one: name a page at a time.
func (s *Store) RaiseVers(ctx context.Context, holder string, leases []Lease, atLeast map[string]int64) error {
	if len(atLeast) == 0 {
		return nil
	}
	ps, err := leasedPartitions(leases)
	if err != nil {
		return err
	}
	for sku, ver := range atLeast {
		if p := stock.Partition(sku, s.cfg.Partitions); !slices.Contains(ps, p) {
			return badMember("raise ver of %s: the lease of its partition %d is not named", sku, p)
		}
		if ver >= stock.MaxQuantity {
			return badMember("raise ver of %s above %d: allowed is below %d", sku, ver, stock.MaxQuantity)
		}
	}
	return s.inTx(ctx, func(c *conn) error {
		if err := s.fence(c, holder, sortedLeases(leases)); err != nil {
			return err
		}
		for _, sku := range slices.Sorted(maps.Keys(atLeast)) { // the order of locks
			err := c.exec(s.d.expand("UPDATE {sku_state} SET ver = $2, updated_at = {now} WHERE sku = $1 AND ver < $2"), sku, atLeast[sku]+1)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

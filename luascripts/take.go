package luascripts

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	// takeTTL is how long a take register lives from its writing on. It is short, and no use renews it, because a close that lowers it
	// may be lost, and nothing sends that again: so long a user may be refused what the database would give.
	takeTTL = 30 * time.Second

	// takesMax is how many takes one call carries: it bounds the arguments that a script unpacks at once.
	takesMax = 512
)

// take is what a fact says of one user, with the fact's place in time: a newer fact of the SKU is often about other users, so takes are
// kept and compared one by one.
type take struct {
	epoch, ver int64
	stock.UserTake
}

// appendTakes appends what the facts say of users; mostly that is nothing.
func appendTakes(dst []take, facts []stock.Fact) []take {
	for i := range facts {
		for _, t := range facts[i].Takes {
			dst = append(dst, take{facts[i].Epoch, facts[i].Ver, t})
		}
	}
	return dst
}

// checkTakes refuses what a script cannot count with.
func checkTakes(f *stock.Fact) error {
	for i := range f.Takes {
		if t := &f.Takes[i]; t.SKU != f.SKU || t.Qty < 0 || t.Qty > stock.MaxQuantity {
			return fmt.Errorf("%w: fact of %s: a user has %d of %s, it must be 0 to %d of the fact's own SKU", stock.ErrNotExecuted, f.SKU,
				t.Qty, t.SKU, stock.MaxQuantity)
		}
	}
	return nil
}

// takesAheadOf reports whether a take is of a newer epoch than this replica knows, like aheadOf.
func takesAheadOf(takes []take, epoch int64) bool {
	for i := range takes {
		if takes[i].epoch > epoch {
			return true
		}
	}
	return false
}

// takesOfEpoch counts the takes of an epoch. Those of an older one would be no more looked at.
func takesOfEpoch(takes []take, epoch int64) (n int) {
	for i := range takes {
		if takes[i].epoch == epoch {
			n++
		}
	}
	return n
}

// takeKeys adds the keys of takes of the epoch.
func (c *command) takeKeys(k *partitionKeys, epoch int64, takes []take) {
	for i := range takes {
		if t := &takes[i]; t.epoch == epoch {
			c.keys++
			from := len(c.buf)
			c.buf = appendTakeName(append(c.buf, k.take...), t.SKU, t.Activity, t.User)
			c.cut(from)
		}
	}
}

// takes adds the registers of takes of the epoch, in the order of takeKeys.
func (c *command) takes(epoch int64, takes []take) {
	for i := range takes {
		if t := &takes[i]; t.epoch == epoch {
			from := len(c.buf)
			c.buf = appendTake(c.buf, t)
			c.cut(from)
		}
	}
}

// appendTake appends a take register: epoch,ver,qty.
func appendTake(b []byte, t *take) []byte {
	b = strconv.AppendInt(b, t.epoch, 10)
	b = strconv.AppendInt(append(b, ','), t.ver, 10)
	return strconv.AppendInt(append(b, ','), t.Qty, 10)
}

package admission

import (
	"strconv"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// allowances remembers, for as long as a sold-out flag, how many units the database left a user whom it refused for his limit. Redis's
// word alone refuses nobody: what a user gave back a moment ago may not have reached it, and a limit has no Retry-After. So who keeps
// asking costs the database one question in 500 ms.
type allowances struct{ flags *flags }

func newAllowances() allowances { return allowances{newFlags()} }

// allowanceKey is unambiguous: a SKU has no slash, and the activity's length says where the user begins.
func allowanceKey(activity, sku, user string) string {
	return sku + "/" + strconv.Itoa(len(activity)) + "/" + activity + user
}

// refuses reports whether the database has just said that line i of r is too much for its user.
func (a allowances) refuses(r *wanted, i int, now time.Time) bool {
	return a.flags.soldOut(allowanceKey(r.TermsOf(i).Activity, r.Lines[i].SKU, r.User), r.Lines[i].Qty, now)
}

// refused keeps what the database said when it refused line i of r.
func (a allowances) refused(r *wanted, i int, facts []stock.Fact, now time.Time) {
	terms := r.TermsOf(i)
	for _, f := range facts {
		for _, t := range f.Takes {
			if t.SKU == r.Lines[i].SKU && t.Activity == terms.Activity && t.User == r.User {
				a.flags.set(allowanceKey(t.Activity, t.SKU, t.User), terms.Limit-t.Qty, f.Ver, now)
			}
		}
	}
}

// changed drops what is remembered of the users whose units have moved since.
func (a allowances) changed(f *stock.Fact) {
	for _, t := range f.Takes {
		a.flags.drop(allowanceKey(t.Activity, t.SKU, t.User))
	}
}

package admission

import (
	"errors"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

func refuse(s Source, r *Refusal) Decision { return Decision{Refusal: r, Source: s} }

// refuseErr turns a failure of a store, which surely had no effect or was seen to, into a refusal.
func refuseErr(err error) *Refusal {
	var limit *stock.LimitError
	if errors.As(err, &limit) {
		return &Refusal{Code: limit.Code, Limit: limit.Limit, Value: limit.Value}
	}
	if errors.Is(err, stock.ErrLate) {
		return &Refusal{Code: stock.CodeQueueTimeout}
	}
	return &Refusal{Code: stock.CodeUnavailable}
}

// refusalOf names the database's refusals.
func refusalOf(v stock.Verdict) *Refusal {
	switch v {
	case stock.VerdictVoided:
		return &Refusal{Code: stock.CodeQueueTimeout, Detail: "This request took too long and was ended. Try again."}
	case stock.VerdictUnknownSKU:
		return &Refusal{Code: stock.CodeUnknownSKU}
	case stock.VerdictPaused:
		return &Refusal{Code: stock.CodePaused}
	case stock.VerdictPurchaseLimit, stock.VerdictTooManyOpen:
		return &Refusal{Code: stock.CodePurchaseLimit}
	case stock.VerdictSoldOut:
		return &Refusal{Code: stock.CodeSoldOut}
	case stock.VerdictShort:
		return &Refusal{Code: stock.CodeUnavailable, Detail: "Units are set aside and cannot be sold from here right now."}
	case stock.VerdictDraining:
		return &Refusal{Code: stock.CodeUnavailable, Detail: "Its stock is with Redis, which cannot be asked for it right now. Try again."}
	case stock.VerdictCorrupt:
		return &Refusal{Code: stock.CodeCorruptStock}
	}
	return &Refusal{Code: stock.CodeUnavailable}
}

// openLimitKey is the key of Terms.OpenLimit in the configuration.
const openLimitKey = "defaults.open_per_user"

// refused names the database's refusal of a settle: with the limit that was hit and, of a cart, the line that decided.
func (r *wanted) refused(res *stock.Result) *Refusal {
	no := refusalOf(res.Verdict)
	if res.Verdict == stock.VerdictTooManyOpen {
		no.Limit, no.Value = openLimitKey, strconv.FormatInt(r.OpenLimit, 10)
		return no
	}
	i, found := r.decided(res)
	if found {
		no.SKU = ofCart(r.Lines, r.Lines[i].SKU)
	}
	if res.Verdict == stock.VerdictPurchaseLimit {
		r.nameLimit(no, i)
	}
	return no
}

// overLimit is the refusal by the limit of line i.
func (r *wanted) overLimit(i int) *Refusal {
	no := &Refusal{Code: stock.CodePurchaseLimit, SKU: ofCart(r.Lines, r.Lines[i].SKU)}
	r.nameLimit(no, i)
	return no
}

func (r *wanted) nameLimit(no *Refusal, i int) {
	if i < len(r.limitKeys) {
		no.Limit, no.Value = r.limitKeys[i], strconv.FormatInt(r.TermsOf(i).Limit, 10)
	}
}

// decided finds the line that the database refused. found is false if it was none; of limits the first limited line is given then.
func (r *wanted) decided(res *stock.Result) (line int, found bool) {
	if res.SKU != "" {
		return r.lineOf(res.SKU), true
	}
	for i := range r.Lines {
		if r.TermsOf(i).Limit > 0 {
			return i, false
		}
	}
	return 0, false
}

package orderservice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stockgate/stockgate/stock"
)

// wish is the body of an order. Other fields are the shop's business.
type wish struct {
	SKU   string `json:"sku"`
	Qty   *int64 `json:"qty"` // absent: 1
	User  name   `json:"user"`
	Items []struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
	} `json:"items"` // of a cart, in place of SKU and Qty
}

// name is a user's: text, or a number, which is kept digit by digit.
type name string

// UnmarshalJSON reads a string as it is and a number as its text: as a float it would lose its last digits.
func (n *name) UnmarshalJSON(raw []byte) error {
	if len(raw) == 0 || raw[0] != '"' {
		var number json.Number
		err := json.Unmarshal(raw, &number)
		*n = name(number)
		return err
	}
	var text string
	err := json.Unmarshal(raw, &text)
	*n = name(text)
	return err
}

// lines are the wished ones, not merged yet.
func (w *wish) lines() []stock.Line {
	if len(w.Items) == 0 {
		qty := int64(1)
		if w.Qty != nil {
			qty = *w.Qty
		}
		return []stock.Line{{SKU: w.SKU, Qty: qty}}
	}
	lines := make([]stock.Line, len(w.Items))
	for i, l := range w.Items {
		lines[i] = stock.Line{SKU: l.SKU, Qty: l.Quantity}
	}
	return lines
}

// readWish is what is ordered and by whom. With a gateway in front, what it deducted counts and not what the body says.
func readWish(r *http.Request, body []byte) (lines []Line, user string, err error) {
	var w wish
	bad := json.Unmarshal(body, &w)
	user = cmp.Or(string(w.User), r.Header.Get("X-User-Id"))
	if given := r.Header.Get(linesHeader); given != "" {
		lines, err = parseLines(given)
		return lines, user, err
	}
	if bad != nil {
		return nil, "", fmt.Errorf("the body is not an order: %w", bad)
	}
	lines, err = merge(w.lines())
	return lines, user, err
}

func merge(lines []stock.Line) ([]Line, error) {
	merged, err := stock.MergeLines(lines)
	if err != nil {
		return nil, err
	}
	ours := make([]Line, len(merged))
	for i, l := range merged {
		ours[i] = Line{SKU: l.SKU, Qty: l.Qty}
	}
	return ours, nil
}

// parseLines reads Stockgate-Lines: "sku-1";q=2, "sku-2";q=1. A SKU has no byte that would be escaped there.
func parseLines(s string) ([]Line, error) {
	var lines []stock.Line
	for member := range strings.SplitSeq(s, ",") {
		sku, params, _ := strings.Cut(strings.TrimSpace(member), ";")
		qty, isQty := strings.CutPrefix(strings.TrimSpace(params), "q=")
		n, err := strconv.ParseInt(qty, 10, 64)
		if !isQty || err != nil || len(sku) < 2 || sku[0] != '"' || sku[len(sku)-1] != '"' {
			return nil, fmt.Errorf("%s has %q, must be like \"sku-1\";q=2", linesHeader, member)
		}
		lines = append(lines, stock.Line{SKU: sku[1 : len(sku)-1], Qty: n})
	}
	return merge(lines)
}

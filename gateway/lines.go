package gateway

import (
	"cmp"
	"strconv"

	"github.com/valyala/fastjson"

	"github.com/stockgate/stockgate/stock"
)

// CartLinesDefault is the most lines of a cart, where the configuration says nothing.
const CartLinesDefault = 100

// cartLinesKey is how a refusal names Config.CartLines.
const cartLinesKey = "server.cart_lines"

// readOrderLines reads what is ordered. Units of one SKU are one line, however many a cart has of it.
func (x *extractor) readOrderLines(r *reader, o *order) *problem {
	if x.lines == nil {
		line, p := x.readLine(r, o.activity)
		if line.SKU != "" {
			o.lines, o.known = append(o.lines, line), true
		}
		return p
	}
	list, p := x.list(r)
	if p != nil {
		return p
	}
	var refused *problem // by the rules: the first
	for i, v := range list {
		p := x.addLine(r, o, i, v)
		if p != nil && !p.byRules {
			return p
		}
		refused = cmp.Or(refused, p)
	}
	if p := x.merge(o); p != nil && (!p.byRules || refused == nil) {
		return p
	}
	return refused
}

// list is the JSON list of a cart's lines: at least one, at most so many as the setting says.
func (x *extractor) list(r *reader) ([]*fastjson.Value, *problem) {
	place := Place{Kind: PlaceBody, Path: x.lines}
	v, p := walk(r.json, spot{path: x.lines})
	switch {
	case p != nil:
		return nil, p
	case v == nil && r.bodiless:
		return nil, r.unseen("lines", []Place{place})
	case v == nil:
		return nil, badRequest("lines", "lines is missing; it was looked for in "+place.String())
	case v.Type() != fastjson.TypeArray:
		return nil, badRequest("lines", "lines ("+place.String()+") is a JSON "+v.Type().String()+", it must be a list")
	}
	list := v.GetArray()
	if len(list) == 0 || len(list) > x.linesMax {
		p := badRequest("lines", "lines ("+place.String()+") has "+strconv.Itoa(len(list))+" elements, allowed are 1 to "+strconv.Itoa(x.linesMax))
		p.limit, p.value = cartLinesKey, strconv.Itoa(x.linesMax)
		return nil, p
	}
	return list, nil
}

// addLine reads the i-th line of a cart.
func (x *extractor) addLine(r *reader, o *order, i int, v *fastjson.Value) *problem {
	r.line, r.way = v, append(append(r.way[:0], x.lines...), strconv.Itoa(i))
	if v.Type() != fastjson.TypeObject {
		where := spot{way: r.way}.String()
		return badRequest("lines", where+" is a JSON "+v.Type().String()+", every line must be an object")
	}
	line, p := x.readLine(r, o.activity)
	if p != nil {
		p.sku = line.SKU
	}
	if p == nil || p.byRules {
		o.lines = append(o.lines, line)
	}
	return p
}

// merge adds up a cart's lines. max_qty is for an order, so it holds for the sum.
func (x *extractor) merge(o *order) *problem {
	merged, err := stock.MergeLines(o.lines)
	if err != nil {
		return badRequest("qty", err.Error())
	}
	again := len(merged) < len(o.lines)
	o.lines, o.known = merged, true
	if !again {
		return nil
	}
	for _, l := range merged {
		if rule, _ := x.rules.Rule(l.SKU, o.activity); l.Qty > rule.MaxQty {
			p := boundQty(badRequest("qty", "qty of "+l.SKU+" adds up to "+strconv.FormatInt(l.Qty, 10)), &rule)
			p.sku, p.byRules = l.SKU, true
			return p
		}
	}
	return nil
}

// readLine reads a SKU and its quantity. With a problem, the SKU is there if it could be read, and the quantity if it is byRules.
func (x *extractor) readLine(r *reader, activity string) (line stock.Line, p *problem) {
	sku, found, p := r.read(&x.sku)
	switch {
	case p != nil:
		return line, p
	case !found:
		return line, r.missing(&x.sku)
	}
	line.SKU = string(sku)
	rule, covers := x.rules.Rule(line.SKU, activity)
	line.Qty, p = x.readQty(r, &rule)
	if (p == nil || p.byRules) && activity != "" && !covers {
		p = badRequest("activity", "activity "+shown([]byte(activity))+" is not one that sells "+line.SKU)
		p.sku, p.byRules = line.SKU, true
	}
	return line, p
}

// readQty reads the quantity: absent it is 1.
func (x *extractor) readQty(r *reader, rule *Rule) (int64, *problem) {
	text, found, p := r.read(&x.qty)
	if p != nil {
		return 0, boundQty(p, rule)
	}
	if !found {
		return 1, nil
	}
	qty, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || qty < 1 || qty > rule.MaxQty {
		p := boundQty(badRequest("qty", "qty is "+shown(text)), rule)
		p.byRules = err == nil && qty >= 1 && qty <= stock.MaxQuantity
		return qty, p
	}
	return qty, nil
}

// boundQty completes a refusal of a quantity with its bound.
func boundQty(p *problem, rule *Rule) *problem {
	if p.field == "qty" {
		p.limit, p.value = cmp.Or(rule.MaxQtyKey, "max_qty"), strconv.FormatInt(rule.MaxQty, 10)
		p.detail += ", allowed is a whole number from 1 to " + p.value
	}
	return p
}

package luascripts

import (
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// decode reads the reply of reserve.lua and answers the items.
func (v *reserver) decode(reply any) {
	text, ok := reply.(string)
	if ok && text == "S" {
		v.answerStale()
		return
	}
	d := replyReader{rest: text, ok: ok}
	idsLoaded := d.header()
	heads := v.heads[:0]
	for range v.skus {
		heads = append(heads, d.head())
	}
	v.heads = heads
	for i, it := range v.batch {
		if !v.decodeItem(&d, it) {
			v.failAll(badReply("reserve", reply)) // the rest of the batch; what was read before stands
			return
		}
		it.reply.IDsLoaded, it.reply.Epoch = idsLoaded, v.epoch
		if it.reply.Code == stock.CacheCorrupt {
			v.alarm(it)
		}
		v.finish(i)
	}
}

// decodeItem reads one item's part into it.
func (v *reserver) decodeItem(d *replyReader, it *item) bool {
	code, sku := d.code()
	it.line = 0
	switch code {
	case stock.CacheNone:
		return false
	case stock.CacheDuplicate:
		it.reply = d.known()
		return d.ok
	case stock.CacheDraining:
		it.reply = stock.CacheReply{Code: code}
		return d.ok
	case stock.CacheWon:
		sku = it.lines[0].at
	default:
		for i := range it.lines {
			if it.lines[i].at == sku {
				it.line = i
			}
		}
	}
	if !d.ok || sku < 0 || sku >= len(v.heads) {
		return false
	}
	h := v.heads[sku]
	it.reply = stock.CacheReply{Code: code, Base: h.base, Rest: h.rest, Ver: h.ver, Ahead: h.ahead, Free: h.free}
	return true
}

func (v *reserver) alarm(it *item) {
	v.c.stats.corrupt.Add(1)
	l := &it.lines[it.line]
	v.c.log.Error("stock in Redis is corrupt: registers are not whole numbers from 0 to 2^53, or the id's record is none",
		zap.ByteString("sku", it.sku(l)), zap.Int("partition", v.p))
}

// head is what all items of a batch are told of a SKU.
type head struct {
	base, rest, ver int64
	free            int64 // of a SKU that sells ahead
	ahead           bool
}

// replyReader reads a reply from left to right without copying. ok turns false for good at the first thing that does not fit.
type replyReader struct {
	rest string
	ok   bool
}

// cut takes what stands before the next sep.
func (d *replyReader) cut(sep byte) string {
	i := strings.IndexByte(d.rest, sep)
	if i < 0 {
		d.ok, d.rest = false, ""
		return ""
	}
	part := d.rest[:i]
	d.rest = d.rest[i+1:]
	return part
}

func (d *replyReader) number(sep byte) int64 { return d.parsed(d.cut(sep)) }

func (d *replyReader) parsed(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	d.ok = d.ok && err == nil
	return n
}

func (d *replyReader) header() (idsLoaded bool) {
	part := d.cut(';')
	d.ok = d.ok && (part == "K0" || part == "K1")
	return part == "K1"
}

func (d *replyReader) head() head {
	h := head{base: d.number(','), rest: d.number(',')}
	last := d.cut(';')
	ver, free, ahead := strings.Cut(last, ",")
	h.ver, h.ahead = d.parsed(ver), ahead
	if ahead {
		h.free = d.parsed(free)
	}
	return h
}

// code reads the letter of an item and, where one follows, the number of the SKU that decided, from 0.
func (d *replyReader) code() (stock.CacheCode, int) {
	if d.rest == "" {
		d.ok = false
		return stock.CacheNone, 0
	}
	letter := d.rest[0]
	d.rest = d.rest[1:]
	switch letter {
	case 'W':
		return stock.CacheWon, 0
	case 'D':
		return stock.CacheDuplicate, 0
	case 'X':
		return stock.CacheDraining, 0
	case 'N':
		return stock.CacheNotLoaded, int(d.number(',')) - 1
	case 'C':
		return stock.CacheCorrupt, int(d.number(',')) - 1
	case 'P':
		return stock.CachePaused, int(d.number(',')) - 1
	case 'L':
		return stock.CacheLimit, int(d.number(',')) - 1
	case 'T':
		return stock.CacheSoldOut, int(d.number(',')) - 1
	case 'Q':
		return stock.CacheWait, int(d.number(',')) - 1
	}
	d.ok = false
	return stock.CacheNone, 0
}

// known reads a record and whether its try stands in open.
func (d *replyReader) known() stock.CacheReply {
	if len(d.rest) < recordBytes+1 {
		d.ok = false
		return stock.CacheReply{}
	}
	try, fingerprint, err := parseRecord(d.rest)
	d.ok = d.ok && err == nil
	open := d.rest[recordBytes] == '1'
	d.rest = d.rest[recordBytes+1:]
	return stock.CacheReply{Code: stock.CacheDuplicate, KnownTry: try, KnownFingerprint: fingerprint, KnownOpen: open}
}

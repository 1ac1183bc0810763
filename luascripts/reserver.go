package luascripts

import (
	"bytes"
	"context"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// reserver coalesces the reservations of one partition.
type reserver struct {
	batcher

	// Of the running goroutine alone, used again for every batch.
	epoch int64 // that the call carries
	skus  []skuRef
	heads []head
}

func (v *reserver) init(c *Client, p int) {
	v.c, v.p, v.name, v.call = c, p, "reserve", v.send
}

// skuRef is one distinct SKU of a batch: the line that named it first.
type skuRef struct {
	it *item
	l  *itemLine
}

// send makes one call to n for the batch and answers every item.
func (v *reserver) send(n *node) {
	if len(v.batch) == 0 {
		return
	}
	defer v.survive()
	epoch, runID, ok := v.c.known(v.p)
	if !ok {
		v.answerStale()
		return
	}
	v.epoch = epoch
	v.encode(epoch, runID)
	v.c.stats.reservations.Add(int64(len(v.batch)))
	reply, err := v.c.guarded(context.Background(), n, &v.c.scripts.reserve, &v.cmd)
	if err != nil {
		v.failAll(err)
		return
	}
	v.decode(reply)
}

func (v *reserver) answerStale() {
	v.c.sawStale(v.p)
	for i, it := range v.batch {
		it.reply = stock.CacheReply{Code: stock.CacheStale}
		v.finish(i)
	}
}

// encode writes the call as reserve.lua wants it.
func (v *reserver) encode(epoch int64, runID string) {
	v.number()
	k, cmd := &v.c.keys[v.p], &v.cmd
	cmd.start(k.part, k.open, k.due, k.out)
	for _, s := range v.skus {
		cmd.keyOfBytes(k.sku, s.it.sku(s.l))
	}
	for _, it := range v.batch {
		cmd.keyOfBytes(k.id, it.id[:])
	}
	v.encodeTakeKeys()
	cmd.int(epoch)
	cmd.text(runID)
	cmd.int(keyTTL.Milliseconds())
	v.encodeNumbers()
	from := len(cmd.buf)
	for _, it := range v.batch {
		cmd.buf = append(cmd.buf, it.entry()...)
	}
	cmd.cut(from)
	for _, s := range v.skus {
		cmd.bytes(s.it.sku(s.l))
	}
}

// encodeTakeKeys adds the keys of the take registers that limited lines are held against.
func (v *reserver) encodeTakeKeys() {
	for _, it := range v.batch {
		for i := range it.lines {
			if l := &it.lines[i]; l.limit > 0 {
				v.cmd.keyOfBytes(v.c.keys[v.p].take, it.take(l))
			}
		}
	}
}

// encodeNumbers adds the JSON array of all numbers.
func (v *reserver) encodeNumbers() {
	from := len(v.cmd.buf)
	b := strconv.AppendInt(append(v.cmd.buf, '['), int64(len(v.skus)), 10)
	b = strconv.AppendInt(append(b, ','), int64(len(v.batch)), 10)
	for _, it := range v.batch {
		b = strconv.AppendInt(append(b, ','), int64(len(it.entry())), 10)
		b = strconv.AppendInt(append(b, ','), it.deadline(), 10)
		b = strconv.AppendInt(append(b, ','), int64(len(it.lines)), 10)
		for i := range it.lines {
			b = strconv.AppendInt(append(b, ','), int64(it.lines[i].at)+1, 10)
			b = append(append(b, ','), it.qty(&it.lines[i])...)
		}
	}
	v.cmd.buf = append(v.appendLimits(b), ']')
	v.cmd.cut(from)
}

// appendLimits appends place and limit of each limited line, in the order of encodeTakeKeys.
func (v *reserver) appendLimits(b []byte) []byte {
	at := 3 // Lua's index of the first number behind S and N
	for _, it := range v.batch {
		at += 3
		for i := range it.lines {
			if l := &it.lines[i]; l.limit > 0 {
				b = strconv.AppendInt(append(b, ','), int64(at), 10)
				b = strconv.AppendInt(append(b, ','), l.limit, 10)
			}
			at += 2
		}
	}
	return b
}

// number gives each distinct SKU of the batch its place. A plain search over hashes: a batch has at most 512 lines and mostly one
// SKU, and a map would keep copies of the names.
func (v *reserver) number() {
	v.skus = v.skus[:0]
	for _, it := range v.batch {
		for i := range it.lines {
			it.lines[i].at = v.place(it, &it.lines[i])
		}
	}
}

func (v *reserver) place(it *item, l *itemLine) int {
	for n, s := range v.skus {
		if s.l.hash == l.hash && bytes.Equal(s.it.sku(s.l), it.sku(l)) {
			return n
		}
	}
	v.skus = append(v.skus, skuRef{it, l})
	return len(v.skus) - 1
}

package luascripts

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/stock"
)

// claimer coalesces the claims of ids of one partition.
type claimer struct{ batcher }

func (v *claimer) init(c *Client, p int) {
	v.c, v.p, v.name, v.call = c, p, "claim", v.send
}

// send makes one call to n for the batch and answers every item.
func (v *claimer) send(n *node) {
	if len(v.batch) == 0 {
		return
	}
	defer v.survive()
	epoch, runID, ok := v.c.known(v.p)
	if !ok {
		v.answerAll(stock.ClaimReply{Code: stock.ClaimStale})
		return
	}
	v.encode(epoch, runID)
	v.c.stats.claims.Add(int64(len(v.batch)))
	reply, err := v.c.guarded(context.Background(), n, &v.c.scripts.claim, &v.cmd)
	if err != nil {
		v.failAll(err)
		return
	}
	v.decode(epoch, reply)
}

// encode writes the call as claim.lua wants it.
func (v *claimer) encode(epoch int64, runID string) {
	k, cmd := &v.c.keys[v.p], &v.cmd
	cmd.start(k.part)
	for _, it := range v.batch {
		cmd.keyOfBytes(k.claim, it.id[:])
	}
	cmd.int(epoch)
	cmd.text(runID)
	from, sep := len(cmd.buf), byte('[')
	for _, it := range v.batch {
		cmd.buf = strconv.AppendInt(append(cmd.buf, sep), it.ttl, 10)
		sep = ','
	}
	cmd.buf = append(cmd.buf, ']')
	cmd.cut(from)
	for _, it := range v.batch {
		cmd.bytes(it.buf)
	}
}

// decode reads the reply of claim.lua and answers the items.
func (v *claimer) decode(epoch int64, reply any) {
	text, ok := reply.(string)
	switch {
	case ok && text == "S":
		v.answerAll(stock.ClaimReply{Code: stock.ClaimStale})
		return
	case ok && text == "X":
		v.answerAll(stock.ClaimReply{Code: stock.ClaimDraining, Epoch: epoch})
		return
	case !ok || !strings.HasPrefix(text, "K0") && !strings.HasPrefix(text, "K1"):
		v.failAll(badReply("claim", reply))
		return
	}
	d := replyReader{rest: text[2:], ok: true}
	for i, it := range v.batch {
		if it.claim, it.err = d.claim(); !d.ok {
			it.err = nil
			v.failAll(badReply("claim", reply)) // the rest of the batch; what was read before stands
			return
		}
		it.claim.IDsLoaded, it.claim.Epoch = text[1] == '1', epoch
		if it.err != nil {
			v.alarm(it)
		}
		v.finish(i)
	}
}

func (v *claimer) alarm(it *item) {
	v.c.stats.corrupt.Add(1)
	v.c.log.Error("the claim of an id in Redis cannot be read", zap.ByteString("id", it.id[:]), zap.Int("partition", v.p))
}

func (v *claimer) answerAll(reply stock.ClaimReply) {
	if reply.Code == stock.ClaimStale {
		v.c.sawStale(v.p)
	}
	for i, it := range v.batch {
		it.claim = reply
		v.finish(i)
	}
}

// claim reads one item's part. A claim that cannot be read is an error of its item alone: nobody can say whose the id is.
func (d *replyReader) claim() (stock.ClaimReply, error) {
	unreadable := fmt.Errorf("%w: the claim that stands cannot be read", stock.ErrNotExecuted)
	if d.rest == "" {
		d.ok = false
		return stock.ClaimReply{}, nil
	}
	letter := d.rest[0]
	d.rest = d.rest[1:]
	switch letter {
	case 'W':
		return stock.ClaimReply{Code: stock.ClaimOurs}, nil
	case 'C':
		return stock.ClaimReply{}, unreadable
	case 'T':
		n := d.number(':')
		if !d.ok || n < 0 || n > int64(len(d.rest)) {
			break
		}
		stands := d.rest[:n]
		d.rest = d.rest[n:]
		try, fingerprint, err := parseRecord(stands)
		if err != nil || len(stands) == recordBytes || stands[recordBytes] != '|' {
			return stock.ClaimReply{}, unreadable
		}
		return stock.ClaimReply{Code: stock.ClaimTaken, KnownTry: try, KnownFingerprint: fingerprint,
			KnownOwner: strings.Clone(stands[recordBytes+1:])}, nil
	}
	d.ok = false
	return stock.ClaimReply{}, nil
}

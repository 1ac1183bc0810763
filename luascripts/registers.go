package luascripts

import (
	"context"

	"github.com/stockgate/stockgate/stock"
)

// Registers tells what Redis holds for the SKUs, in their order: per partition in one moment, not over partitions. What is not loaded
// has Loaded false. Corrupt is one that is loaded but whose registers cannot be read: it comes as loaded with base, rest and out −1.
func (c *Client) Registers(ctx context.Context, skus []string) ([]stock.Registers, error) {
	all := make([]stock.Registers, len(skus))
	byPartition := make(map[int][]int)
	for i, sku := range skus {
		all[i].SKU = sku
		p := stock.Partition(sku, c.cfg.Partitions)
		byPartition[p] = append(byPartition[p], i)
	}
	cmd := c.borrow()
	defer c.lend(cmd)
	for p, of := range byPartition {
		for len(of) > 0 {
			n := min(len(of), linesMax)
			if err := c.readRegisters(ctx, p, cmd, all, of[:n]); err != nil {
				return nil, err
			}
			of = of[n:]
		}
	}
	return all, nil
}

// readRegisters fills all[i] for each i of one partition.
func (c *Client) readRegisters(ctx context.Context, p int, cmd *command, all []stock.Registers, of []int) error {
	k := &c.keys[p]
	cmd.start(k.part, k.out)
	for _, i := range of {
		cmd.keyOf(k.sku, all[i].SKU)
	}
	for _, i := range of {
		cmd.text(all[i].SKU)
	}
	reply, err := c.call(ctx, p, &c.scripts.registers, cmd)
	if err != nil {
		return err
	}
	fields, _ := reply.([]any)
	if len(fields) != 2+7*len(of) {
		return badReply("registers", reply)
	}
	text := make([]string, len(fields))
	for n, f := range fields {
		text[n], _ = f.(string)
	}
	for n, i := range of {
		fillRegisters(&all[i], text[0], text[1], text[2+7*n:])
	}
	return nil
}

// fillRegisters reads epoch, ver, base, rest, paused, ahead and out.
func fillRegisters(r *stock.Registers, epoch, summed string, f []string) {
	if f[0] == "?" {
		r.Loaded, r.Base, r.Rest, r.Out = true, -1, -1, -1
		return
	}
	var ok bool
	if r.Epoch, ok = register(f[0]); !ok || f[0] != epoch || summed != epoch {
		return
	}
	r.Loaded, r.Paused, r.Ahead = true, f[4] != "0", f[5] == "1"
	if f[6] == "" {
		f[6] = "0"
	}
	for n, field := range [...]*int64{&r.Ver, &r.Base, &r.Rest} {
		*field = orMinusOne(f[1+n])
	}
	r.Out = orMinusOne(f[6])
}

func orMinusOne(s string) int64 {
	if n, ok := register(s); ok {
		return n
	}
	return -1
}

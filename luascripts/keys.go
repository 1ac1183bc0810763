package luascripts

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"github.com/stockgate/stockgate/stock"
)

// All key names are made here; scripts only get them. The keys of partition p share the hash tag {<prefix>:<p>}, so that a script
// that needs several finds them on one node of a cluster. A SKU stands behind the tag and cannot close it: stock.CheckSKU allows
// no braces. Only the first brace pair of a name is its tag, so an activity or a user behind it may hold any byte.
//
//	{stockgate:7}:part          hash    epoch, run_id, ids, open
//	{stockgate:7}:open          hash    id → entry of a try that is not settled yet
//	{stockgate:7}:due           zset    id by deadline, ms
//	{stockgate:7}:out           hash    SKU → units in open; '#' → epoch they were summed under
//	{stockgate:7}:sku:<sku>     hash    epoch, base, rest, ver, paused, ahead
//	{stockgate:7}:id:<id>       string  try|fingerprint
//	{stockgate:7}:claim:<id>    string  try|fingerprint|owner: who orders ahead under an id, in the partition of the id, not of its SKUs
//	{stockgate:7}:take:<name>   string  epoch,ver,qty: what a user has of a SKU in an activity; see appendTakeName
//	{stockgate:7}:tokens:<name> string  missing,at: tokens of a limit that all replicas share; see tokenKey
//	stockgate:meta              hash    deployment, partitions, prefix
//
// out does not stand beside base in the SKU's hash because a close knows the SKUs of an entry only once it has read the entry, and
// a script may not make the name of a key out of that.

// partitionKeys are the names of a partition's keys. The four that every call needs are kept as interface values, so that a call
// need not make new ones.
type partitionKeys struct {
	part, open, due, out any // string
	sku, id, take, claim string
	tokens               string
}

func newPartitionKeys(prefix string, p int) partitionKeys {
	tag := "{" + prefix + ":" + strconv.Itoa(p) + "}:"
	return partitionKeys{part: tag + "part", open: tag + "open", due: tag + "due", out: tag + "out", sku: tag + "sku:", id: tag + "id:",
		take: tag + "take:", claim: tag + "claim:", tokens: tag + "tokens:"}
}

func metaKey(prefix string) string { return prefix + ":meta" }

// tokenKey adds the key of a bucket: <limit>/<key, hex>. A limit's name has no stroke. The value that is counted by is not in it, so no
// name is long and no address or user stands in Redis.
func (c *command) tokenKey(k *partitionKeys, a *stock.TokenAsk) {
	c.keys++
	from := len(c.buf)
	c.buf = append(append(append(c.buf, k.tokens...), a.Limit...), '/')
	c.buf = hex.AppendEncode(c.buf, a.Key[:])
	c.cut(from)
}

// takeNameMax is how many bytes of activity and user stand in the name of a take register as they are. Longer ones are hashed, so
// that no name is longer than a SKU and 68 bytes.
const takeNameMax = 64

// appendTakeName appends the name of a take register: <sku>/<bytes of activity>/<activity><user>, or, if those are long,
// <sku>#<SHA-256 of what stands behind the first stroke, hex>. No two (SKU, activity, user) share a name: a SKU has neither / nor #.
func appendTakeName(b []byte, sku, activity, user string) []byte {
	b = append(append(b, sku...), '/')
	from := len(b)
	b = append(strconv.AppendInt(b, int64(len(activity)), 10), '/')
	b = append(append(b, activity...), user...)
	if len(activity)+len(user) <= takeNameMax {
		return b
	}
	sum := sha256.Sum256(b[from:])
	b[from-1] = '#'
	return hex.AppendEncode(b[:from], sum[:])
}

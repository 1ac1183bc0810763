package luascripts

import "strconv"

// All key names are made here; scripts only get them. The keys of partition p share the hash tag {<prefix>:<p>}, so that a script
// that needs several finds them on one node of a cluster. A SKU stands behind the tag and cannot close it: stock.CheckSKU allows
// no braces.
//
//	{stockgate:7}:part          hash    epoch, run_id, ids
//	{stockgate:7}:open          hash    id → entry of a try that is not settled yet
//	{stockgate:7}:due           zset    id by deadline, ms
//	{stockgate:7}:out           hash    SKU → units in open; '#' → epoch they were summed under
//	{stockgate:7}:sku:<sku>     hash    epoch, base, rest, ver, paused
//	{stockgate:7}:id:<id>       string  try|fingerprint
//	stockgate:meta              hash    deployment, partitions, prefix
//
// out does not stand beside base in the SKU's hash because a close knows the SKUs of an entry only once it has read the entry, and
// a script may not make the name of a key out of that.

// partitionKeys are the names of a partition's keys. The four that every call needs are kept as interface values, so that a call
// need not make new ones.
type partitionKeys struct {
	part, open, due, out any // string
	sku, id              string
}

func newPartitionKeys(prefix string, p int) partitionKeys {
	tag := "{" + prefix + ":" + strconv.Itoa(p) + "}:"
	return partitionKeys{part: tag + "part", open: tag + "open", due: tag + "due", out: tag + "out", sku: tag + "sku:", id: tag + "id:"}
}

func metaKey(prefix string) string { return prefix + ":meta" }

package stock

import (
	"fmt"
	"hash/crc32"
)

const (
	// SKUBytesMax is the longest SKU, in bytes.
	SKUBytesMax = 128
	// MaxQuantity is the largest quantity anywhere: 2^53, because Redis scripts count in doubles and a double is exact up to here.
	MaxQuantity int64 = 1 << 53
)

// CheckSKU says what is wrong with a SKU, or nil: 1–128 bytes of [A-Za-z0-9._:-]. SKUs are compared byte for byte.
func CheckSKU(sku string) error {
	if len(sku) == 0 || len(sku) > SKUBytesMax {
		return fmt.Errorf("sku has %d bytes, allowed are 1 to %d", len(sku), SKUBytesMax)
	}
	for i := 0; i < len(sku); i++ {
		if !skuByte(sku[i]) {
			return fmt.Errorf("sku has %q at byte %d, allowed are A-Z a-z 0-9 . _ : -", sku[i], i+1)
		}
	}
	return nil
}

func skuByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '-'
}

// Partition is the group that a SKU belongs to: CRC-32 (IEEE) of the SKU mod partitions. partitions must be at least 1.
func Partition(sku string, partitions int) int {
	// The sum is written out because crc32.ChecksumIEEE makes its argument escape: an allocation in every request.
	sum := ^uint32(0)
	for i := 0; i < len(sku); i++ {
		sum = crc32.IEEETable[byte(sum)^sku[i]] ^ sum>>8
	}
	return int(^sum % uint32(partitions))
}

// ClaimPartition is where an id is claimed before anything is forwarded ahead under it: CRC-32 (IEEE) of the id mod partitions, which
// must be at least 1.
func ClaimPartition(id ID, partitions int) int {
	return int(crc32.ChecksumIEEE(id[:]) % uint32(partitions))
}

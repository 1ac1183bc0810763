package stock

import (
	"hash/crc32"
	"strings"
	"testing"
)

func TestPartitionIsTheCRC32OfTheSKU(t *testing.T) {
	for _, sku := range []string{"", "a", "sku-1001", "9007199254740993", strings.Repeat("x:.-_", 25)} {
		for _, partitions := range []int{1, 2, 64, 1 << 16} {
			want := int(crc32.ChecksumIEEE([]byte(sku)) % uint32(partitions))
			if got := Partition(sku, partitions); got != want {
				t.Errorf("%q in %d: %d, want %d", sku, partitions, got, want)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() { Partition("sku-1001", 64) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

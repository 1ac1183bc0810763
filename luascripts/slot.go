package luascripts

import "strings"

// slotsTotal is how many slots a Redis Cluster has.
const slotsTotal = 16384

// slotOf is the slot of a key: CRC-16 (XMODEM) of what stands in its first braces, if that is not empty, else of all of it.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slotsTotal
}

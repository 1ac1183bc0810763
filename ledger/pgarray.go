package ledger

import (
	"encoding/binary"
	"time"

	"github.com/lib/pq/oid"

	"github.com/stockgate/stockgate/stock"
)

// pgArray is a one-dimensional array in PostgreSQL's binary form. With binary_parameters, lib/pq sends []byte as binary, so arrays
// need no quoting, bodies no hex, and the server parses nothing: a third less work for both sides than arrays as text.
//
//	int32 dimensions = 1, int32 has NULLs = 0, int32 element type, int32 length, int32 first index = 1, then per element int32 size, bytes
type pgArray []byte

func newArray(elem oid.Oid, n, size int) pgArray {
	b := make(pgArray, 0, 20+n*(4+size))
	if n == 0 { // no dimensions
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, uint32(elem))
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(elem))
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1)
}

func (b pgArray) number(n int64) pgArray {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(n))
}

func (b pgArray) bytes(elem []byte) pgArray {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(elem))), elem...)
}

func (b pgArray) text(elem string) pgArray {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(elem))), elem...)
}

// column makes an array of one value of each row.
func numberColumn[T any](rows []T, of func(*T) int64) []byte {
	b := newArray(oid.T_int8, len(rows), 8)
	for i := range rows {
		b = b.number(of(&rows[i]))
	}
	return b
}

func textColumn[T any](rows []T, of func(*T) string) []byte {
	size := 0
	for i := range rows {
		size += len(of(&rows[i]))
	}
	b := newArray(oid.T_text, len(rows), size/max(len(rows), 1)+1)
	for i := range rows {
		b = b.text(of(&rows[i]))
	}
	return b
}

func idColumn[T any](rows []T, of func(*T) stock.ID) []byte {
	b := newArray(oid.T_uuid, len(rows), len(stock.ID{}))
	for i := range rows {
		id := of(&rows[i])
		b = b.bytes(id[:])
	}
	return b
}

func boolColumn[T any](rows []T, of func(*T) bool) []byte {
	b := newArray(oid.T_bool, len(rows), 1)
	for i := range rows {
		truth := []byte{0}
		if of(&rows[i]) {
			truth[0] = 1
		}
		b = b.bytes(truth)
	}
	return b
}

func bytesColumn[T any](rows []T, of func(*T) []byte) []byte {
	b := newArray(oid.T_bytea, len(rows), 256)
	for i := range rows {
		b = b.bytes(of(&rows[i]))
	}
	return b
}

// pgEpoch is where PostgreSQL begins to count microseconds.
var pgEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func timeColumn[T any](rows []T, of func(*T) time.Time) []byte {
	b := newArray(oid.T_timestamptz, len(rows), 8)
	for i := range rows {
		b = b.number(of(&rows[i]).UnixMicro() - pgEpoch)
	}
	return b
}

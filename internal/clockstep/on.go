//go:build crashpoints

package clockstep

import (
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"
)

// fresh is how long what the file said is used again.
const fresh = 20 * time.Millisecond

var (
	file    = os.Getenv(Variable)
	began   = time.Now()
	seconds atomic.Int64
	read    atomic.Int64 // ns after began
)

// Now is the time with its wall clock stepped and its monotonic clock as it is.
func Now() time.Time {
	now := time.Now()
	if file == "" {
		return now
	}
	return stepped(now, step(now))
}

// step is what the file says, looked at once in a while.
func step(now time.Time) int64 {
	since := int64(now.Sub(began)) + int64(fresh) // above 0, so that the first one looks
	last := read.Load()
	if since-last < int64(fresh) || !read.CompareAndSwap(last, since) {
		return seconds.Load()
	}
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(string(text), 10, 64)
	seconds.Store(n)
	return n
}

// instant is laid out as time.Time is: with a monotonic reading (the highest bit of wall) the 33 bits below it are seconds and the lowest 30
// nanoseconds of the wall clock. There is no call that moves it alone.
type instant struct {
	wall uint64
	_    int64
	_    *time.Location
}

func stepped(t time.Time, seconds int64) time.Time {
	(*instant)(unsafe.Pointer(&t)).wall += uint64(seconds << 30)
	return t
}

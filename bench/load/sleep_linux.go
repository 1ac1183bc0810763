package load

import (
	"syscall"
	"time"
)

// napMax is how long a nap may be: longer waits are for the runtime's timers.
const napMax = 2 * time.Millisecond

// nap waits for at most napMax in the kernel. The runtime's timers are exact to a millisecond when it is idle, because it waits in
// epoll; at a thousand requests a second that millisecond would be most of the latency that is measured.
func nap(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil) // an early end only means that the caller looks at the clock again
}

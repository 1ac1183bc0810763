//go:build !linux

package load

import "time"

const napMax = 2 * time.Millisecond

func nap(d time.Duration) { time.Sleep(d) }

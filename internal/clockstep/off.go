//go:build !crashpoints

package clockstep

import "time"

// Now is time.Now in this build.
func Now() time.Time { return time.Now() }

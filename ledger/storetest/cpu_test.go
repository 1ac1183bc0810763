package storetest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cpuTime is what this process and the PostgreSQL server on port have used. On a shared machine it says more than the time that
// passed.
func cpuTime(port string) (self, server time.Duration) {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	self = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	var parent string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if raw, err := os.ReadFile(path); err == nil && port != "" && bytes.Contains(raw, []byte("postgres\x00-D")) && bytes.Contains(raw, []byte("\x00-p\x00"+port+"\x00")) {
			parent = filepath.Base(filepath.Dir(path))
		}
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if f[1] == parent {
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			server += time.Duration(user+system) * 10 * time.Millisecond // ticks of 1/100 s
		}
	}
	return self, server
}

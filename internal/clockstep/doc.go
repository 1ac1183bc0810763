// Package clockstep builds programs whose wall clock a test can set, as an operator or NTP sets the clock of a machine: time.Now tells
// another date at once, in the program's own code and in every library, while the monotonic clock, timers and sleeps go on as before.
//
//	flags, err := clockstep.Flags(dir)                 // for go build
//	cmd.Env = append(os.Environ(), clockstep.Variable+"="+file)
//	err = clockstep.Set(file, -time.Hour)              // before the start or at any time after it
//
// # How
//
// The flags are an overlay: go build reads package time from two files of ours in place of one of the toolchain's. A hook in the product
// would be seen only where somebody thought of it, and the fault that is looked for is the place where nobody did. So normal builds know
// nothing of it, and there is no line of the product to forget.
//
// The program looks at the file when it is asked for the time and has not looked for 20 ms. A file that is absent or holds no number is a
// step of zero. Steps are whole seconds.
//
// # When it breaks
//
// Flags looks for the one line of package time that it adds to, and fails if a new toolchain has another one.
package clockstep

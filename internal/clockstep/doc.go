// Package clockstep lets a test set the wall clock of a running program, as an operator or NTP sets the clock of a machine: Now tells
// another date at once, while the monotonic clock, timers and sleeps go on as before. It does nothing unless the binary was built with the
// tag crashpoints: then Now looks for the step in the file that the environment variable Variable names.
//
//	cmd.Env = append(os.Environ(), clockstep.Variable+"="+file)
//	err = clockstep.Set(file, -time.Hour)              // before the start or at any time after it
//
// # Who asks it
//
// Whatever keeps a moment as a number, compares it with one of another clock, or shows it: the database's clock beside ours, what rules
// of a sale are judged by, limits. A difference of two moments of one process is safe from steps: time.Time has both clocks and subtracts
// by the monotonic one. So the moments that Now gives have both too, and only their wall clock is moved.
//
// # How often it looks
//
// The file is read when Now is asked and has not looked for 20 ms. A file that is absent or holds no number is a step of zero. Steps are
// whole seconds.
package clockstep

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/stockgate/stockgate/bench/load"
)

// The exit statuses.
const (
	exitHolds  = 0
	exitBroken = 1
	exitFailed = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the command without the process around it.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	o, err := parseOptions(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return exitHolds
	}
	if err == nil {
		err = o.check(ctx)
	}
	var r *report
	if err == nil {
		r, err = measure(ctx, o, errs)
	}
	if err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return exitFailed
	}
	r.print(out)
	if err := r.save(o.jsonFile); err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return exitFailed
	}
	return r.Exit
}

// measure runs the load and gets the verdict.
func measure(ctx context.Context, o *options, errs io.Writer) (*report, error) {
	var alone *stage
	if o.url == "" {
		var err error
		if alone, err = setUp(ctx, o, errs); err != nil {
			return nil, err
		}
		defer alone.tearDown()
	}
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	evidence, err := openEvidence(o)
	if err != nil {
		return nil, err
	}
	defer evidence.close()
	if err := evidence.prepare(ctx, errs); err != nil {
		return nil, err
	}
	machine := thisMachine()
	fmt.Fprintf(errs, "sending to %s …\n", config.Target.URL)
	result, aside, err := o.runLoad(ctx, config, alone, errs)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted after %d requests", result.Sent())
	}
	r := newReport(o, machine, result, evidence.judge(ctx, result, errs))
	r.Hotspot = aside.hotspot
	if aside.killed != "" {
		r.Fault = newFaultReport(o, aside.killed, result)
	}
	return r, nil
}

// aside is what a run has to say beside its result.
type aside struct {
	killed  string         // what was broken on purpose; "": nothing
	hotspot *hotspotReport // nil: no --hotspot
}

// runLoad sends the load, and breaks meanwhile what is to be broken.
func (o *options) runLoad(ctx context.Context, c load.Config, alone *stage, errs io.Writer) (r *load.Result, more aside, err error) {
	switch {
	case o.hotspot:
		r, more.hotspot, err = o.runHotspot(ctx, c, errs)
		return r, more, err
	case alone == nil || o.kill == 0:
		r, err = load.Run(ctx, c)
		return r, more, err
	}
	c.Watch = &load.Watch{From: o.kill, Apart: alone.victims.apart}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	over := alone.strike(ctx, errs)
	r, err = load.Run(ctx, c)
	if o.back == 0 {
		stop()
	}
	<-over
	return r, aside{killed: alone.victims.names}, err
}

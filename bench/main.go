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
	if o.url == "" {
		stage, err := setUp(ctx, o, errs)
		if err != nil {
			return nil, err
		}
		defer stage.tearDown()
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
	result, err := load.Run(ctx, config)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("interrupted after %d requests", result.Sent())
	}
	return newReport(o, machine, result, evidence.judge(ctx, result, errs)), nil
}

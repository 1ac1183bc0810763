package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
)

// importTimeout is longer than the gateway gives an import, so that its answer is heard.
const importTimeout = 3 * time.Minute

// importing reads a file into a call that may take long, shows how far the gateway is, and names the bad lines.
func (f *clientFlags) importing(cmd *cobra.Command, name string,
	do func(ctx context.Context, c *client.Client, in io.Reader, progress func(api.Progress)) error) error {
	in, err := openInput(cmd, name)
	if err != nil {
		return err
	}
	defer in.Close()
	if !cmd.Flags().Changed("timeout") {
		f.timeout = importTimeout
	}
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		line := newProgressLine(cmd.ErrOrStderr())
		err := do(ctx, c, in, line.show)
		line.end()
		showBadLines(cmd.ErrOrStderr(), err)
		return err
	})
}

func openInput(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || info.IsDir() {
		_ = file.Close() // it was only read from
		return nil, cmp.Or(err, fmt.Errorf("%s is a directory, and not a file of lines", name))
	}
	return file, nil
}

// progressLine shows how far an import is, on one line of a terminal. Elsewhere it shows nothing: a log is no place for it.
type progressLine struct {
	out   io.Writer // nil: no terminal
	shown bool
}

func newProgressLine(out io.Writer) *progressLine {
	file, ok := out.(*os.File)
	if !ok {
		return &progressLine{}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progressLine{}
	}
	return &progressLine{out: out}
}

func (l *progressLine) show(p api.Progress) {
	if l.out == nil {
		return
	}
	l.shown = true
	fmt.Fprintf(l.out, "\r\x1b[K%s %d of %d", p.Phase, p.Done, p.Of)
}

// end clears the line.
func (l *progressLine) end() {
	if l.shown {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
}

// showBadLines prints the lines of an import that the gateway refused, as a table.
func showBadLines(out io.Writer, err error) {
	var problem *api.Problem
	if !errors.As(err, &problem) || len(problem.BadLines) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(w, "LINE", "PROBLEM")
	for _, bad := range problem.BadLines {
		row(w, bad.Line, bad.Problem)
	}
	_ = w.Flush() // as fmt.Fprint to the same place: nobody is left to tell
	if more := problem.BadLinesTotal - len(problem.BadLines); more > 0 {
		fmt.Fprintf(out, "and %d more\n", more)
	}
}

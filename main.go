// Command stockgate is an API gateway and ingress sidecar that lets an online shop survive a flash sale without selling one unit too
// many or losing one. This package holds the commands and the wiring: which part is given what. See docs/architecture.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs one command; SIGINT and SIGTERM end its context. The result is the exit status.
func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stockgate:", err)
		var other exitStatus
		if errors.As(err, &other) {
			return other.ExitStatus()
		}
		return 1
	}
	return 0
}

// exitStatus is an error with a status of its own; all others have 1.
type exitStatus interface{ ExitStatus() int }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "stockgate",
		Short:         "Admit only as many orders as there is stock",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServeCommand(), newValidateCommand(), newMigrateCommand(), newStockCommand(), newReservationCommand())
	return root
}

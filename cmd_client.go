package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/gateway/control/client"
)

// tokenEnv keeps the token out of the process list and of the shell's history.
const tokenEnv = "STOCKGATE_TOKEN"

// clientFlags are shared by the commands that talk to a running gateway.
type clientFlags struct {
	control string
	token   string
	timeout time.Duration
	json    bool
}

// register adds the flags to cmd and everything below it.
func (f *clientFlags) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.control, "control", "http://127.0.0.1:9090", "control address of any replica")
	flags.StringVar(&f.token, "token", "", "control.token of the gateway; better in the environment: "+tokenEnv)
	flags.DurationVar(&f.timeout, "timeout", 15*time.Second, "how long to wait for the gateway")
	flags.BoolVar(&f.json, "json", false, "print JSON instead of a table")
}

// connect makes the client that the flags describe. The caller closes it.
func (f *clientFlags) connect() (*client.Client, error) {
	token := f.token
	if token == "" {
		token = os.Getenv(tokenEnv)
	}
	token = strings.TrimSpace(token) // of a file there is a line's end behind it
	return client.New(client.Config{URL: f.control, Token: token, Timeout: f.timeout})
}

// show prints v as JSON, or what table makes of it for people.
func (f *clientFlags) show(out io.Writer, v any, table func(w io.Writer)) error {
	if f.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// row prints one line of a table.
func row(w io.Writer, cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, cell)
	}
	fmt.Fprintln(w)
}

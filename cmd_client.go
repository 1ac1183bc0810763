package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/internal/certs"
)

// tokenEnv keeps the token out of the process list and of the shell's history.
const tokenEnv = "STOCKGATE_TOKEN"

// clientFlags are shared by the commands that talk to a running gateway.
type clientFlags struct {
	control string
	token   string
	actor   string
	ca      string
	cert    string
	key     string
	timeout time.Duration
	json    bool
}

// register adds the flags to cmd and everything below it.
func (f *clientFlags) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.control, "control", "http://127.0.0.1:9090", "control address of any replica")
	flags.StringVar(&f.token, "token", "", "control.token of the gateway; better in the environment: "+tokenEnv)
	flags.StringVar(&f.ca, "ca", "", "PEM file of the authorities of an https address; those of the system if absent")
	flags.StringVar(&f.cert, "cert", "", "PEM file of the certificate to show to an https address")
	flags.StringVar(&f.key, "key", "", "PEM file of that certificate's key")
	flags.StringVar(&f.actor, "actor", "", "who acts, for the ledger; the user of this machine if absent")
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
	actor := f.actor
	if actor == "" {
		actor = thisUser()
	} else if actor != asActor(actor) {
		return nil, fmt.Errorf("--actor is %q, must be 1 to %d visible ASCII bytes", actor, actorBytesMax)
	}
	secure, err := f.secure()
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: f.control, Token: token, Actor: actor, Timeout: f.timeout, TLS: secure})
}

// secure is how TLS is spoken, as the flags say; nil: they say nothing.
func (f *clientFlags) secure() (*certs.Source, error) {
	files := certs.Files{CA: f.ca, Cert: f.cert, Key: f.key}
	if files == (certs.Files{}) {
		return nil, nil
	}
	at, err := url.Parse(f.control)
	if err != nil || at.Scheme != "https" {
		return nil, fmt.Errorf("--control is %q, must begin with https:// with --ca, --cert or --key", f.control)
	}
	source, err := certs.Call("commands", certs.Calling{Files: files, ServerName: at.Hostname()}, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("--ca, --cert, --key: %w", err)
	}
	return source, nil
}

// actorBytesMax is what the gateway takes of an actor.
const actorBytesMax = 128

// thisUser is who runs the command, "" if that is not known or cannot be said in a header.
func thisUser() string {
	if u, err := user.Current(); err == nil {
		return asActor(u.Username)
	}
	return asActor(os.Getenv("USER"))
}

// asActor is name if it can stand in a header, else "".
func asActor(name string) string {
	if len(name) > actorBytesMax || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return name
}

// with runs do with a client and closes it.
func (f *clientFlags) with(cmd *cobra.Command, do func(context.Context, *client.Client) error) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return do(ctx, c)
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

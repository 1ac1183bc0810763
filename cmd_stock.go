package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/stock"
)

// listPage is how many SKUs are asked for at a time.
const listPage = 1000

// newStockCommand is `stockgate stock …`: what an operator does with stock, through the control API of a running gateway.
func newStockCommand() *cobra.Command {
	f := &clientFlags{}
	cmd := &cobra.Command{
		Use:          "stock",
		Short:        "See and change stock through a running gateway",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd)
	cmd.AddCommand(
		f.setCommand(),
		f.addCommand(),
		f.getCommand(),
		f.listCommand(),
		f.importCommand(),
		f.historyCommand(),
		f.noteCommand("sync", "Notice what others wrote to the stock row, and put Redis right", (*client.Client).SyncStock),
		f.noteCommand("pause", "Stop sales of a SKU", (*client.Client).PauseStock),
		f.noteCommand("resume", "Restart sales of a SKU", (*client.Client).ResumeStock),
		f.doubtsCommand(),
		f.clearDoubtsCommand(),
	)
	return cmd
}

func (f *clientFlags) setCommand() *cobra.Command {
	in := api.SetStock{}
	cmd := &cobra.Command{
		Use:     "set SKU UNITS",
		Short:   "Make the unsold units of a SKU this many; creates the SKU; safe to repeat with --op",
		Example: "  stockgate stock set sku-1001 100",
	}
	cmd.Flags().StringVar(&in.Op, "op", "", opUsage)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the ledger")
	return takingUnits(cmd, 0, func(cmd *cobra.Command, sku string, units int64) error {
		named := in.Op
		in.Available, in.Op = units, orDrawn(named)
		return toRepeat(in.Op, f.change(cmd, sku, func(ctx context.Context, c *client.Client) (api.Change, error) {
			change, err := c.SetStock(ctx, sku, in)
			change.Op = named // a drawn one is of use only if this failed
			return change, err
		}))
	})
}

func (f *clientFlags) addCommand() *cobra.Command {
	in := api.AdjustStock{}
	cmd := &cobra.Command{
		Use:   "add SKU UNITS",
		Short: "Add units to a SKU, or take them away with a negative number; safe to repeat with --op",
		Example: "  stockgate stock add sku-1001 50\n" +
			"  stockgate stock add sku-1001 -5 --reason broken --op delivery-4711",
	}
	cmd.Flags().StringVar(&in.Op, "op", "", opUsage)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the ledger")
	return takingUnits(cmd, -stock.MaxQuantity, func(cmd *cobra.Command, sku string, units int64) error {
		if units == 0 {
			return errors.New("UNITS is 0, which changes nothing")
		}
		in.Delta, in.Op = units, orDrawn(in.Op)
		return toRepeat(in.Op, f.change(cmd, sku, func(ctx context.Context, c *client.Client) (api.Change, error) {
			return c.AdjustStock(ctx, sku, in)
		}))
	})
}

// takingUnits makes cmd take the arguments SKU UNITS, with units from least. cobra would take -5 for flags, so that the command parses its
// own line.
func takingUnits(cmd *cobra.Command, least int64, run func(cmd *cobra.Command, sku string, units int64) error) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.RunE = func(cmd *cobra.Command, line []string) error {
		args, help, err := parseSigned(cmd, line)
		if help || err != nil {
			return errors.Join(err, helpIf(cmd, help))
		}
		if err := cobra.ExactArgs(2)(cmd, args); err != nil {
			return err
		}
		units, err := parseUnits("UNITS", args[1], least)
		if err != nil {
			return err
		}
		return run(cmd, args[0], units)
	}
	return cmd
}

const opUsage = "your id of this change: the same id again changes nothing; drawn if absent"

func orDrawn(op string) string {
	if op == "" {
		return "cli-" + uuid.NewString()
	}
	return op
}

// toRepeat says how a change that failed is repeated safely, if it may have been made.
func toRepeat(op string, err error) error {
	if maybeDone(err) {
		return fmt.Errorf("%w; to repeat safely: --op %s", err, op)
	}
	return err
}

// maybeDone reports whether a change that failed so may have been made, or may be tried again under the same op.
func maybeDone(err error) bool {
	var problem *api.Problem
	var input *client.InputError
	if err == nil || errors.As(err, &input) {
		return false
	}
	return !errors.As(err, &problem) || problem.Status >= 500
}

func (f *clientFlags) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get SKU",
		Short: "Show a SKU",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := stock.CheckSKU(args[0]); err != nil {
				return err
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				sku, err := c.Stock(ctx, args[0])
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), sku, func(w io.Writer) { stockTable(w, []api.SKU{sku}) })
			})
		},
	}
}

func (f *clientFlags) listCommand() *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show all SKUs, by name",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return fmt.Errorf("--limit is %d, must be 0 or more", limit)
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				list, err := listStock(ctx, c, after, limit)
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), list, func(w io.Writer) { stockTable(w, list.SKUs) })
			})
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "only SKUs whose name comes after this one")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this many; 0: all")
	return cmd
}

// listStock gathers pages until limit (0: none) or the end.
func listStock(ctx context.Context, c *client.Client, after string, limit int) (api.SKUList, error) {
	all := api.SKUList{SKUs: []api.SKU{}, Next: after}
	for {
		page := listPage
		if limit > 0 {
			page = min(page, limit-len(all.SKUs))
		}
		list, err := c.ListStock(ctx, all.Next, page)
		if err != nil {
			return all, err
		}
		all.SKUs, all.Next = append(all.SKUs, list.SKUs...), list.Next
		if all.Next == "" || len(all.SKUs) == limit {
			return all, nil
		}
	}
}

func (f *clientFlags) historyCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history SKU",
		Short: "Show the latest rows of a SKU's ledger: what changed, who asked, and why",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := stock.CheckSKU(args[0]); err != nil {
				return err
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				page, err := c.Ledger(ctx, client.LedgerOf{SKU: args[0]}, "", limit)
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), page, func(w io.Writer) { ledgerTable(w, page.Rows) })
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "how many rows, 1 to 1000")
	return cmd
}

func (f *clientFlags) importCommand() *cobra.Command {
	var op string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Set many SKUs from CSV lines sku,available; - reads standard input",
		Long: "Set many SKUs from CSV lines sku,available, with or without that header line: all of them or none. An import whose answer\n" +
			"was lost is repeated with the --op that it names: what is set already then stays as it is.",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.importing(cmd, args[0], func(ctx context.Context, c *client.Client, in io.Reader, progress func(api.Progress)) error {
			op = orDrawn(op)
			done, err := c.ImportStock(ctx, op, in, progress)
			if err != nil {
				return toRepeat(op, err)
			}
			return f.show(cmd.OutOrStdout(), done, func(w io.Writer) { fmt.Fprintln(w, counted(done.SKUs, "SKU"), "set") })
		})
	}
	cmd.Flags().StringVar(&op, "op", "", opUsage)
	return cmd
}

// noteCommand is a change that carries nothing but a reason.
func (f *clientFlags) noteCommand(verb, short string,
	call func(*client.Client, context.Context, string, string) (api.Change, error)) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   verb + " SKU",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.change(cmd, args[0], func(ctx context.Context, c *client.Client) (api.Change, error) {
				return call(c, ctx, args[0], reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the ledger")
	return cmd
}

// change makes one change of a SKU and shows what it left.
func (f *clientFlags) change(cmd *cobra.Command, sku string, do func(context.Context, *client.Client) (api.Change, error)) error {
	if err := stock.CheckSKU(sku); err != nil {
		return err
	}
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		change, err := do(ctx, c)
		if err != nil {
			return err
		}
		return f.show(cmd.OutOrStdout(), change, func(w io.Writer) { changeTable(w, change) })
	})
}

func stockTable(w io.Writer, skus []api.SKU) {
	row(w, "SKU", "AVAILABLE", "GRANTED", "HELD", "CONFIRMED", "PUT IN", "REDIS FREE", "STATE")
	for _, s := range skus {
		row(w, s.SKU, s.Available, s.Granted, s.Held, s.Confirmed, s.StockIn+s.Changed, redisFree(s.Redis), shown(s))
	}
}

func changeTable(w io.Writer, c api.Change) {
	row(w, "SKU", "AVAILABLE", "GRANTED", "STATE", "OP")
	row(w, c.SKU, c.Available, c.Granted, stateOf(c.Fact), orDash(c.Op))
}

func shown(s api.SKU) string {
	if s.Corrupt || s.Redis != nil && s.Redis.Corrupt {
		return "corrupt"
	}
	state := stateOf(s.Fact)
	if s.Consistency == api.Eventual {
		state += ", eventual"
	}
	if s.Doubtful > 0 {
		state += fmt.Sprintf(", %d doubtful", s.Doubtful)
	}
	return state
}

func redisFree(r *api.Registers) string {
	if r == nil || !r.Loaded || r.Corrupt {
		return "-"
	}
	return strconv.FormatInt(r.Free, 10)
}

func stateOf(f api.Fact) string {
	switch {
	case f.Paused:
		return "paused"
	case f.Available+f.Granted == 0:
		return "sold out"
	}
	return "on sale"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// parseUnits reads a whole number from least to 2^53, in plain digits as an import has them: 010 and +7 are refused.
func parseUnits(name, s string, least int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > stock.MaxQuantity || s != strconv.FormatInt(n, 10) {
		return 0, fmt.Errorf("%s is %q, must be a whole number from %d to %d in plain digits", name, s, least, stock.MaxQuantity)
	}
	return n, nil
}

var negative = regexp.MustCompile(`^-[0-9]+$`)

// parseSigned parses a command line whose arguments may be negative numbers, which flags would swallow, and returns the arguments.
func parseSigned(cmd *cobra.Command, line []string) (args []string, help bool, err error) {
	cmd.DisableFlagParsing = false
	var flags, numbers []string
	for i, word := range line {
		if negative.MatchString(word) && (i == 0 || !wantsValue(cmd, line[i-1])) {
			numbers = append(numbers, word)
		} else {
			flags = append(flags, word)
		}
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(flags); err != nil {
		return nil, false, err
	}
	help, err = cmd.Flags().GetBool("help")
	return append(cmd.Flags().Args(), numbers...), help, err
}

// wantsValue reports whether a word is a flag whose value is the next word.
func wantsValue(cmd *cobra.Command, word string) bool {
	name, long := strings.CutPrefix(word, "--")
	flag := cmd.Flag(name)
	return long && flag != nil && flag.NoOptDefVal == ""
}

func helpIf(cmd *cobra.Command, help bool) error {
	if !help {
		return nil
	}
	return cmd.Help()
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
	"github.com/stockgate/stockgate/stock"
)

// newReservationCommand is `stockgate reservation …`: what an operator does with reservations, through the control API of a running gateway.
func newReservationCommand() *cobra.Command {
	f := &clientFlags{}
	cmd := &cobra.Command{
		Use:          "reservation",
		Short:        "See and change reservations through a running gateway",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd)
	cmd.AddCommand(
		f.getReservationCommand(),
		f.findReservationsCommand(),
		f.unknownCommand(),
		f.confirmCommand(),
		f.releaseCommand(),
		f.extendCommand(),
		f.createCommand(),
		f.importOrdersCommand(),
		f.compensationsCommand(),
		f.retryCommand(),
	)
	return cmd
}

func (f *clientFlags) getReservationCommand() *cobra.Command {
	var history bool
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Show a reservation",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onReservation(cmd, args[0], func(ctx context.Context, c *client.Client, id stock.ID) (api.Reservation, error) {
				return c.Reservation(ctx, id, history)
			})
		},
	}
	cmd.Flags().BoolVar(&history, "history", false, "with its rows of the ledger, newest first")
	return cmd
}

// onReservation makes one call about a reservation and shows what came of it.
func (f *clientFlags) onReservation(cmd *cobra.Command, text string,
	do func(context.Context, *client.Client, stock.ID) (api.Reservation, error)) error {
	id, err := stock.ParseID(text)
	if err != nil {
		return err
	}
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		r, err := do(ctx, c, id)
		if err != nil {
			return err
		}
		return f.showReservation(cmd, r)
	})
}

func (f *clientFlags) showReservation(cmd *cobra.Command, r api.Reservation) error {
	return f.show(cmd.OutOrStdout(), r, func(w io.Writer) {
		reservationTable(w, []api.Reservation{r})
		if len(r.History) > 0 {
			row(w)
			ledgerTable(w, r.History)
		}
	})
}

func (f *clientFlags) findReservationsCommand() *cobra.Command {
	by := client.Find{}
	limit := 0
	cmd := &cobra.Command{
		Use:   "find",
		Short: "Find reservations by user, order reference or request id",
		Example: "  stockgate reservation find --user u1\n" +
			"  stockgate reservation find --order-ref 4711\n" +
			"  stockgate reservation find --request 3f2a --user u1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if by.Request == "" && (by.User == "") == (by.OrderRef == "") || by.Request != "" && by.OrderRef != "" {
				return errors.New("name one of --user, --order-ref and --request (with the --user that it came with, if any)")
			}
			return f.listReservations(cmd, by, limit)
		},
	}
	cmd.Flags().StringVar(&by.User, "user", "", "whose")
	cmd.Flags().StringVar(&by.OrderRef, "order-ref", "", "the order service's own id")
	cmd.Flags().StringVar(&by.Request, "request", "", "the request id that the client sent")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many; 0: all")
	return cmd
}

func (f *clientFlags) unknownCommand() *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "unknown",
		Short: "Show held reservations whose order may or may not exist, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.listReservations(cmd, client.Find{Unknown: true}, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many; 0: all")
	return cmd
}

func (f *clientFlags) listReservations(cmd *cobra.Command, by client.Find, limit int) error {
	if limit < 0 {
		return fmt.Errorf("--limit is %d, must be 0 or more", limit)
	}
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		list, err := findAll(ctx, c, by, limit)
		if err != nil {
			return err
		}
		return f.show(cmd.OutOrStdout(), list, func(w io.Writer) { reservationTable(w, list.Reservations) })
	})
}

// findAll gathers pages until limit (0: none) or the end.
func findAll(ctx context.Context, c *client.Client, by client.Find, limit int) (api.ReservationList, error) {
	all := api.ReservationList{Reservations: []api.Reservation{}}
	for {
		page := listPage
		if limit > 0 {
			page = min(page, limit-len(all.Reservations))
		}
		list, err := c.Find(ctx, by, all.Next, page)
		if err != nil {
			return all, err
		}
		all.Reservations, all.Next = append(all.Reservations, list.Reservations...), list.Next
		if all.Next == "" || len(all.Reservations) == limit {
			return all, nil
		}
	}
}

func (f *clientFlags) confirmCommand() *cobra.Command {
	in := api.Confirm{}
	cmd := &cobra.Command{
		Use:   "confirm ID",
		Short: "Say that the order of a reservation is paid",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onReservation(cmd, args[0], func(ctx context.Context, c *client.Client, id stock.ID) (api.Reservation, error) {
				return c.Confirm(ctx, id, in)
			})
		},
	}
	cmd.Flags().StringVar(&in.OrderRef, "order-ref", "", "the order service's own id")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the ledger")
	return cmd
}

func (f *clientFlags) releaseCommand() *cobra.Command {
	in := api.Release{}
	var lines []string
	cmd := &cobra.Command{
		Use:   "release ID",
		Short: "Give the units of a reservation back: there is no order, or it is cancelled or refunded",
		Long: "Give the units of a reservation back. Say so only if there is no order and will be none, or if it is cancelled or refunded:\n" +
			"the units are sold again.",
		Example: "  stockgate reservation release 7dbfd4965e5ef1d51e52cfdb5567578c --reason cancelled\n" +
			"  stockgate reservation release 7dbfd4965e5ef1d51e52cfdb5567578c --line sku-1001=1 --op return-17",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Lines, err = parseLines(lines); err != nil {
				return err
			}
			if len(in.Lines) > 0 {
				in.Op = orDrawn(in.Op)
			}
			err = f.onReservation(cmd, args[0], func(ctx context.Context, c *client.Client, id stock.ID) (api.Reservation, error) {
				return c.Release(ctx, id, in)
			})
			if in.Op != "" {
				return toRepeat(in.Op, err)
			}
			return err
		},
	}
	cmd.Flags().StringArrayVar(&lines, "line", nil, "only so many units of this SKU, as SKU=UNITS; may be repeated")
	cmd.Flags().StringVar(&in.Op, "op", "", opUsage+"; with --line only")
	cmd.Flags().StringVar(&in.OrderRef, "order-ref", "", "the order service's own id")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the ledger (default cancelled, with --line returned)")
	cmd.Flags().BoolVar(&in.UnlessPaid, "unless-paid", false, "leave it as it is if it is confirmed")
	return cmd
}

// parseLines reads SKU=UNITS.
func parseLines(texts []string) ([]api.OrderLine, error) {
	var lines []api.OrderLine
	for _, text := range texts {
		sku, units, found := strings.Cut(text, "=")
		if !found {
			return nil, fmt.Errorf("line %q must be SKU=UNITS", text)
		}
		if err := stock.CheckSKU(sku); err != nil {
			return nil, err
		}
		qty, err := parseUnits("UNITS of "+sku, units, 1)
		if err != nil {
			return nil, err
		}
		lines = append(lines, api.OrderLine{SKU: sku, Qty: qty})
	}
	return lines, nil
}

func (f *clientFlags) extendCommand() *cobra.Command {
	in := api.Extend{}
	cmd := &cobra.Command{
		Use:     "extend ID HOLD",
		Short:   "Make the whole hold of a reservation this long; never shorter",
		Example: "  stockgate reservation extend 7dbfd4965e5ef1d51e52cfdb5567578c 25m",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if d, err := time.ParseDuration(args[1]); err != nil || d < time.Second {
				return fmt.Errorf("HOLD is %q, must be a length of time of at least 1s, such as 25m or 1h30m", args[1])
			}
			in.Hold = args[1]
			return f.onReservation(cmd, args[0], func(ctx context.Context, c *client.Client, id stock.ID) (api.Reservation, error) {
				return c.Extend(ctx, id, in)
			})
		},
	}
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the ledger")
	return cmd
}

func (f *clientFlags) createCommand() *cobra.Command {
	in := api.CreateReservation{}
	var key string
	cmd := &cobra.Command{
		Use:     "create SKU=UNITS…",
		Short:   "Take units without an order that is forwarded, with the limits of its --user; safe to repeat with --key",
		Example: "  stockgate reservation create sku-1001=2 --user u1 --key phone-order-17",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Lines, err = parseLines(args); err != nil {
				return err
			}
			key = orDrawn(key)
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				r, err := c.Reserve(ctx, key, in)
				if maybeDone(err) {
					return fmt.Errorf("%w; to repeat safely: --key %s", err, key)
				}
				if err != nil {
					return err
				}
				return f.showReservation(cmd, r)
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "request id: the same again gets the same reservation; drawn if absent")
	cmd.Flags().StringVar(&in.User, "user", "", "for whom")
	cmd.Flags().StringVar(&in.Activity, "activity", "", "in which activity; that of the SKU if absent")
	cmd.Flags().StringVar(&in.Hold, "hold", "", "held for longer than the rules say, such as 25m")
	return cmd
}

func (f *clientFlags) importOrdersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Make reservations of orders that were open before stockgate came; - reads standard input",
		Long: "Make reservations of open orders from CSV lines order_ref,sku,qty,user,state[,hold], with or without that header line. state is held\n" +
			"(not paid) or confirmed. Their units have left the stock already: available does not move. The same file again changes nothing; one\n" +
			"that says confirmed of an order that is held here confirms it. Name only orders that have no reservation.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.importing(cmd, args[0], func(ctx context.Context, c *client.Client, in io.Reader, progress func(api.Progress)) error {
				done, err := c.ImportReservations(ctx, in, progress)
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), done, func(w io.Writer) {
					fmt.Fprintf(w, "%s: %d held, %d confirmed\n", counted(done.Reservations, "reservation"), done.Held, done.Confirmed)
				})
			})
		},
	}
}

func reservationTable(w io.Writer, list []api.Reservation) {
	row(w, "RESERVATION", "STATE", "OUTCOME", "REASON", "LINES", "USER", "ORDER", "ROUTE", "EXPIRES", "AGE")
	for i := range list {
		r := &list[i]
		row(w, r.ID, r.State, outcomeOf(r), orDash(r.Reason), linesOf(r.Lines), orDash(r.User), orDash(r.OrderRef), r.Route,
			r.ExpiresAt.Format(time.RFC3339), ageOf(r))
	}
}

func outcomeOf(r *api.Reservation) string {
	if r.InFlight {
		return "in flight"
	}
	return r.Outcome
}

// linesOf is the lines as SKU=UNITS, with what was given back.
func linesOf(lines []api.Line) string {
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.SKU + "=" + strconv.FormatInt(l.Qty, 10)
		if l.Released > 0 {
			texts[i] += "-" + strconv.FormatInt(l.Released, 10)
		}
	}
	return strings.Join(texts, ",")
}

func ageOf(r *api.Reservation) string {
	if r.Age == 0 {
		return "-"
	}
	return (time.Duration(r.Age) * time.Millisecond).Round(time.Second).String()
}

func ledgerTable(w io.Writer, rows []api.LedgerRow) {
	row(w, "AT", "SKU", "SEQ", "KIND", "DELTA", "AFTER", "RESERVATION", "ACTOR", "REASON", "OP")
	for i := range rows {
		r := &rows[i]
		row(w, r.At.Format(time.RFC3339), r.SKU, r.Seq, r.Kind, r.Delta, r.After, orDash(r.Reservation), orDash(r.Actor), orDash(r.Reason), orDash(r.Op))
	}
}

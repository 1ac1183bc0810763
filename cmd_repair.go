package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/gateway/control/client"
)

func (f *clientFlags) doubtsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doubts",
		Short: "Show silent replicas that may have sold units of a grant, and whether the database has lost commits",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.onDoubts(cmd, func(ctx context.Context, c *client.Client) (api.DoubtList, error) { return c.Doubts(ctx) })
		},
	}
}

func (f *clientFlags) clearDoubtsCommand() *cobra.Command {
	var reason string
	var all bool
	cmd := &cobra.Command{
		Use:   "clear-doubts {PARTITION | --all}",
		Short: "Say that no silent replica has sold units of a partition that the shop's orders do not show",
		Long: "Say that no silent replica has sold units of a partition that the shop's orders do not show, and show the doubts that this ends.\n" +
			"The doubt of gateway \"database\" says that the database has lost commits: what they held has to be put right first.\n" +
			"The units are sold again: compare with the shop's orders first, once order_delay is over since the replica was last heard of.",
		Example: "  stockgate stock clear-doubts 17 --reason 'orders compared, ticket 4711'\n" +
			"  stockgate stock clear-doubts --all --reason 'restored 12:40, orders compared'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || all == (len(args) == 1) {
				return fmt.Errorf("needs PARTITION, a number, or --all, and not both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				return f.onDoubts(cmd, func(ctx context.Context, c *client.Client) (api.DoubtList, error) {
					return c.ClearAllDoubts(ctx, reason)
				})
			}
			p, err := strconv.Atoi(args[0])
			if err != nil || p < 0 {
				return fmt.Errorf("PARTITION is %q, must be a number from 0", args[0])
			}
			return f.onDoubts(cmd, func(ctx context.Context, c *client.Client) (api.DoubtList, error) {
				return c.ClearDoubts(ctx, p, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the gateway's log")
	cmd.Flags().BoolVar(&all, "all", false, "of every partition, in one step: after a restore each may have one")
	return cmd
}

func (f *clientFlags) onDoubts(cmd *cobra.Command, do func(context.Context, *client.Client) (api.DoubtList, error)) error {
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		list, err := do(ctx, c)
		if err != nil {
			return err
		}
		return f.show(cmd.OutOrStdout(), list, func(w io.Writer) {
			row(w, "PARTITION", "GATEWAY", "EPOCH", "SINCE")
			for _, d := range list.Doubts {
				row(w, d.Partition, d.Gateway, d.Epoch, d.At.Format(time.RFC3339))
			}
		})
	})
}

func (f *clientFlags) compensationsCommand() *cobra.Command {
	var state string
	limit := 0
	cmd := &cobra.Command{
		Use:   "compensations",
		Short: "Show orders that were forwarded with nothing left to deduct, and what is done about them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return fmt.Errorf("--limit is %d, must be 0 or more", limit)
			}
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				list, err := listCompensations(ctx, c, state, limit)
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), list, func(w io.Writer) { compensationTable(w, list.Compensations) })
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only those that are pending, processing, done or dead")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many; 0: all")
	return cmd
}

// listCompensations gathers pages until limit (0: none) or the end.
func listCompensations(ctx context.Context, c *client.Client, state string, limit int) (api.CompensationList, error) {
	all := api.CompensationList{Compensations: []api.Compensation{}}
	for {
		page := listPage
		if limit > 0 {
			page = min(page, limit-len(all.Compensations))
		}
		list, err := c.Compensations(ctx, state, all.Next, page)
		if err != nil {
			return all, err
		}
		all.Compensations, all.Next = append(all.Compensations, list.Compensations...), list.Next
		if all.Next == "" || len(all.Compensations) == limit {
			return all, nil
		}
	}
}

func (f *clientFlags) retryCommand() *cobra.Command {
	in := api.RetryCompensation{}
	cmd := &cobra.Command{
		Use:   "retry COMPENSATION",
		Short: "Look at a compensation now, with all its calls before it",
		Long: "Look at a compensation now, with all its calls before it. One that was dead is made void: an earlier call may have done so. If its\n" +
			"order surely stands, --make good looks for its units first; --make void makes it void, whatever units there are.",
		Example: "  stockgate reservation retry surplus.7dbfd4965e5ef1d51e52cfdb5567578c",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				now, err := c.RetryCompensation(ctx, args[0], in)
				if err != nil {
					return err
				}
				return f.show(cmd.OutOrStdout(), now, func(w io.Writer) { compensationTable(w, []api.Compensation{now}) })
			})
		},
	}
	cmd.Flags().StringVar(&in.Make, "make", "", "good or void; as it was if absent")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for its detail")
	return cmd
}

func compensationTable(w io.Writer, list []api.Compensation) {
	row(w, "COMPENSATION", "STATE", "ATTEMPTS", "NEXT", "SINCE", "DETAIL")
	for _, c := range list {
		row(w, c.ID, c.State, c.Attempts, nextOf(c), c.CreatedAt.Format(time.RFC3339), orDash(c.Detail))
	}
}

// nextOf is when a compensation is looked at again, if it is.
func nextOf(c api.Compensation) string {
	if c.State != "pending" && c.State != "processing" {
		return "-"
	}
	return c.NextAt.Format(time.RFC3339)
}

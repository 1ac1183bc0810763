package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/config"
	"github.com/stockgate/stockgate/ledger"
)

// newMigrateCommand is `stockgate migrate`: for shops whose gateways may not change tables (database.migrate: false).
func newMigrateCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "migrate --config FILE",
		Short:   "Create or upgrade stockgate's own tables",
		Long:    "Create or upgrade stockgate's own tables. The shop's own stock table is never altered. Several at once are safe; a repeat does nothing.",
		Example: "  stockgate migrate --config /etc/stockgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file, config.Options{})
			if err != nil {
				return err
			}
			store, err := ledger.Open(ledgerConfig(cfg))
			if err != nil {
				return err
			}
			defer store.Close()
			if err := store.Migrate(cmd.Context()); err != nil {
				return err
			}
			meta, err := store.Prepare(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "tables are up to date; deployment %s, %d partitions, prefix %s\n",
				meta.Deployment, meta.Partitions, meta.Prefix)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	_ = cmd.MarkFlagRequired("config") // fails only for a flag that does not exist
	return cmd
}

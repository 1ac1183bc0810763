package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/stockgate/stockgate/config"
)

// newValidateCommand is `stockgate validate`: what is wrong with a configuration file, all of it, without starting anything.
func newValidateCommand() *cobra.Command {
	var file, old string
	var asJSON, references bool
	cmd := &cobra.Command{
		Use:   "validate --config FILE [--diff OLD]",
		Short: "Say everything that is wrong with a configuration file",
		Long: `Say everything that is wrong with a configuration file, one line each: file:line: key: message.

Warnings tell what runs in another way than it is written, refusals what serve does not start with, because this version lacks it.
The exit status is 1 if there are problems; warnings and refusals do not change it.

--diff OLD says besides, key by key, what changes from the file OLD, and whether a reload takes it: "reload" by this replica, "reload, all
replicas" because it is stored in the database, or "restart". The exit status is then 2 if the file is valid and a key needs a restart, for
which a reload of it is refused as a whole; 0 if a reload takes all, or nothing changes. Secrets are never printed.

A file is often checked away from its secrets, so a variable or a file that a value refers to and that is not there is a warning, and so
are TLS files that cannot be used. Where serve will run, --references makes it the problem that it is for serve.`,
		Example:      "  stockgate validate --config stockgate.yaml --json\n  stockgate validate --config new.yaml --diff stockgate.yaml\n  stockgate validate --config /etc/stockgate/config.yaml --references",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := validateFile(file, old, config.Options{AllowMissing: !references})
			if err != nil {
				return err
			}
			if err := report.write(cmd.OutOrStdout(), asJSON); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	cmd.Flags().StringVar(&old, "diff", "", "say what changes from this file, and what of it needs a restart")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&references, "references", false, "variables and files that values refer to must be there, and TLS files be in order, as for serve")
	_ = cmd.MarkFlagRequired("config") // fails only for a flag that does not exist
	return cmd
}

// validateReport is what validate prints. Its lists are never nil, so that JSON has [] and not null.
type validateReport struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Problems []validateRemark `json:"problems"`
	Warnings []validateRemark `json:"warnings"`
	Refusals []validateRemark `json:"refusals"`
	// Changes is there with --diff.
	Changes *[]validateChange `json:"changes,omitempty"`
}

// validateRemark is one problem, warning or refusal.
type validateRemark struct {
	Line    int    `json:"line,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	text    string
}

// validateFile gives an error only if a file cannot be read, or if the old one is not valid. An old of "" is none.
func validateFile(file, old string, o config.Options) (*validateReport, error) {
	c, err := config.Load(file, o)
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return nil, err
	}
	var warnings config.Problems
	if err == nil {
		if warnings = tlsProblems(file, c); !o.AllowMissing {
			problems, warnings = warnings, nil
		}
	}
	r := &validateReport{File: file, Valid: len(problems) == 0, Problems: validateRemarks(problems, ""), Warnings: validateRemarks(nil, ""), Refusals: validateRemarks(nil, "")}
	if r.Valid {
		r.Warnings = validateRemarks(append(warnings, config.Warnings(c)...), "warning: ")
		r.Refusals = validateRemarks(config.Refusals(c), "serve refuses: ")
	}
	if old == "" {
		return r, nil
	}
	was, err := config.Load(old, o)
	if err != nil {
		return nil, fmt.Errorf("--diff: %w", err)
	}
	if r.Valid {
		r.compare(was, c)
	}
	return r, nil
}

func validateRemarks(ps config.Problems, kind string) []validateRemark {
	rs := make([]validateRemark, len(ps))
	for i, p := range ps {
		rs[i] = validateRemark{Line: p.Line, Key: p.Key, Message: p.Message(), text: p.Where() + kind + p.Unplaced()}
	}
	return rs
}

func (r *validateReport) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	for _, list := range [][]validateRemark{r.Problems, r.Warnings, r.Refusals} {
		for _, remark := range list {
			if _, err := fmt.Fprintln(w, remark.text); err != nil {
				return err
			}
		}
	}
	if !r.Valid {
		return nil
	}
	if err := r.writeChanges(w); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

// summary is the last line of a valid file: what serve will do with it.
func (r *validateReport) summary() string {
	warnings := counted(len(r.Warnings), "warning")
	if len(r.Refusals) == 0 {
		return fmt.Sprintf("%s is valid: %s, 0 refusals", r.File, warnings)
	}
	return fmt.Sprintf("%s is valid, but this version's serve refuses it: %s, %s", r.File, warnings, counted(len(r.Refusals), "refusal"))
}

// verdict is the error that makes the exit status 1.
func (r *validateReport) verdict() error {
	if r.Valid {
		return r.restarts()
	}
	return fmt.Errorf("%s is not valid: %s", r.File, counted(len(r.Problems), "problem"))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

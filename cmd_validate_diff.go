package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/stockgate/stockgate/config"
)

// validateChange is one key that differs from the old file.
type validateChange struct {
	Key    string `json:"key"`
	Old    string `json:"old"` // "": it is added
	New    string `json:"new"` // "": it is removed
	Effect string `json:"effect"`
	text   string
}

// effectTexts say when a change is used, in validate and in the log.
var effectTexts = map[config.Effect]string{
	config.EffectLive: "reload", config.EffectRules: "reload, all replicas", config.EffectRestart: "restart",
}

// compare notes what changes between two valid files.
func (r *validateReport) compare(old, next *config.Config) {
	changes := []validateChange{}
	for _, c := range config.Changes(old, next) {
		changes = append(changes, validateChange{Key: c.Key, Old: c.Old, New: c.New, Effect: string(c.Effect),
			text: c.Key + ": " + change(c) + " (" + effectTexts[c.Effect] + ")"})
	}
	r.Changes = &changes
}

func change(c config.Change) string {
	switch {
	case c.Added:
		return "added, " + worded(c.New)
	case c.Removed:
		return "removed, was " + worded(c.Old)
	case c.Old == c.New: // a secret, or what a reference leads to
		return worded(c.Old) + " holds something else"
	}
	return worded(c.Old) + " -> " + worded(c.New)
}

func worded(text string) string {
	if text == "" {
		return "empty"
	}
	return text
}

func (r *validateReport) writeChanges(w io.Writer) error {
	if r.Changes == nil {
		return nil
	}
	for _, c := range *r.Changes {
		if _, err := fmt.Fprintln(w, c.text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s, %d of them by a restart only\n", counted(len(*r.Changes), "change"), len(r.restartKeys()))
	return err
}

func (r *validateReport) restartKeys() []string {
	var keys []string
	if r.Changes != nil {
		for _, c := range *r.Changes {
			if c.Effect == string(config.EffectRestart) {
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}

// restarts is the error of a valid file that a reload would refuse.
func (r *validateReport) restarts() error {
	if keys := r.restartKeys(); len(keys) > 0 {
		return needsRestart(keys)
	}
	return nil
}

// needsRestart are keys that only a start uses.
type needsRestart []string

// Error names them.
func (n needsRestart) Error() string {
	return "only a restart uses what is new of " + strings.Join(n, ", ")
}

// ExitStatus is that of validate --diff.
func (needsRestart) ExitStatus() int { return 2 }

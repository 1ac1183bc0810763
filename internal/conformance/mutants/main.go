package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockgate/stockgate/internal/conformance"
)

func main() {
	only := flag.String("only", "", "run the rules whose name has this in it; several with commas between")
	workers := flag.Int("p", 2, "rules at a time, 1 or more")
	timeout := flag.Duration("timeout", 5*time.Minute, "longest run of one package's tests")
	find := flag.String("find", "", "name the tests of this folder that fail under each mutation, instead of checking the rules")
	verbose := flag.Bool("v", false, "print what the tests print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	r := &runner{dir: dir, timeout: *timeout, verbose: *verbose}
	var bad int
	if *find != "" {
		bad = r.search(ctx, chosen(*only), *find)
	} else {
		bad = r.all(ctx, chosen(*only), *workers)
	}
	_ = os.RemoveAll(dir)
	if bad > 0 || ctx.Err() != nil {
		os.Exit(1)
	}
}

func chosen(only string) []conformance.Rule {
	var rules []conformance.Rule
	parts := strings.Split(only, ",")
	for _, r := range conformance.Rules() {
		if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(r.Name, part) }) {
			rules = append(rules, r)
		}
	}
	return rules
}

// all checks every rule, prints what came of it, and counts those that are not held.
func (r *runner) all(ctx context.Context, rules []conformance.Rule, workers int) (bad int) {
	var mu sync.Mutex
	var group sync.WaitGroup
	room := make(chan struct{}, max(workers, 1))
	for _, rule := range rules {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			problem := r.check(ctx, rule)
			mu.Lock()
			defer mu.Unlock()
			if problem == nil {
				fmt.Printf("held      %d %s\n", rule.Section, rule.Name)
				return
			}
			bad++
			fmt.Printf("NOT HELD  %d %s: %v\n", rule.Section, rule.Name, problem)
		})
	}
	group.Wait()
	fmt.Printf("%d rules: %d held, %d not held\n", len(rules), len(rules)-bad, bad)
	return bad
}

// search prints which tests of a folder notice each mutation, for the one who writes an entry.
func (r *runner) search(ctx context.Context, rules []conformance.Rule, folder string) (bad int) {
	for _, rule := range rules {
		failures, err := r.find(ctx, rule, folder)
		if err != nil {
			bad++
		}
		fmt.Printf("%d %s: %v %v\n", rule.Section, rule.Name, strings.Join(failures, " "), err)
	}
	return bad
}

package clockstep_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/clockstep"
	"github.com/stockgate/stockgate/internal/testservices"
)

// program tells, for each line that it reads, its wall clock, and how long it has run by the monotonic one.
const program = `package main

import ("bufio"; "fmt"; "os"; "time")

func main() {
	began := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Printf("%s %d\n", now.UTC().Format(time.RFC3339), now.Sub(began))
	}
}
`

func TestTheWallClockStepsAndTheMonotonicOneDoesNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags, err := clockstep.Flags(dir)
	if err != nil {
		t.Fatal(err)
	}
	source, binary, file := filepath.Join(dir, "main.go"), filepath.Join(dir, "program"), filepath.Join(dir, "step")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", append(append([]string{"build", "-o", binary}, flags...), source)...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	ask := start(t, binary, file)
	for _, step := range []time.Duration{0, -25 * time.Hour, 400 * 24 * time.Hour, 0} {
		if err := clockstep.Set(file, step); err != nil {
			t.Fatal(err)
		}
		testservices.Eventually(t, "the clock steps", func() string {
			wall, ran := ask()
			if off := wall.Sub(time.Now().Add(step)); off.Abs() > time.Hour {
				return wall.String()
			}
			if ran < 0 || ran > time.Hour {
				t.Fatalf("stepped by %s, the program has run for %s", step, ran)
			}
			return ""
		})
	}
}

// start runs the program; the function asks it for its clocks.
func start(t *testing.T, binary, file string) (ask func() (time.Time, time.Duration)) {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), clockstep.Variable+"="+file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	return func() (time.Time, time.Duration) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		wall, ran, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.Parse(time.RFC3339, wall)
		if err != nil {
			t.Fatal(err)
		}
		d, err := time.ParseDuration(ran + "ns")
		if err != nil {
			t.Fatal(err)
		}
		return at, d
	}
}

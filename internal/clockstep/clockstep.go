package clockstep

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Variable is the environment variable that names the file with the step. Without it the clock is the true one.
const Variable = "STOCKGATE_CLOCK_STEP"

// step is the file that is added to package time.
//
//go:embed step.go.txt
var step string

// reads is the line of time.Now that reads the clocks.
const reads = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {"

// Flags writes an overlay into dir and gives the flags with which go build uses it.
func Flags(dir string) ([]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("clockstep: go env GOROOT: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source := filepath.Join(folder, "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("clockstep: %w", err)
	}
	if n := strings.Count(string(text), reads); n != 1 {
		return nil, fmt.Errorf("clockstep: %s has %q %d times, must be once: look at what time.Now does now", source, reads, n)
	}
	stepped := strings.Replace(string(text), reads, strings.Replace(reads, "\n", "\n\tsec += wallStep(mono)\n", 1), 1)
	replace := map[string]string{source: filepath.Join(dir, "time.go"), filepath.Join(folder, "wallstep.go"): filepath.Join(dir, "wallstep.go")}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, fmt.Errorf("clockstep: %w", err)
	}
	for name, content := range map[string]string{"time.go": stepped, "wallstep.go": step, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("clockstep: %w", err)
		}
	}
	return []string{"-overlay", filepath.Join(dir, "overlay.json")}, nil
}

// Set steps the clock of the programs that look at file to d beside the true time, in whole seconds. Zero is the true time again.
func Set(file string, d time.Duration) error {
	fresh := file + ".new"
	if err := os.WriteFile(fresh, []byte(strconv.FormatInt(int64(d/time.Second), 10)), 0o600); err != nil {
		return fmt.Errorf("clockstep: %w", err)
	}
	if err := os.Rename(fresh, file); err != nil { // nobody reads half a number
		return fmt.Errorf("clockstep: %w", err)
	}
	return nil
}

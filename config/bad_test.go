package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantMark begins the part of a file in testdata/bad that says what Parse must say of it, line by line.
const wantMark = "# want:\n"

// Each file in testdata/bad is one mistake, or one family of them. What is expected stands at its end.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			checkBadFile(t, file)
		})
	}
}

func checkBadFile(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	body, want, _ := strings.Cut(string(data), wantMark)
	_, err = Parse("f", []byte(body), testOptions())
	var problems Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error is %v, want Problems", err)
	}
	var got strings.Builder
	for _, p := range problems {
		got.WriteString("# " + strings.TrimPrefix(p.String(), "f:") + "\n")
	}
	if *update {
		write(t, file, body+wantMark+got.String())
		return
	}
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

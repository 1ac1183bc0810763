package testservices

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartNginx starts an nginx with what stands in http and listens on addr, which it must listen on. Its own paths are in a folder of the
// test, and it is one process, so that it serves as whoever runs the test.
func StartNginx(t testing.TB, addr, http string) {
	t.Helper()
	bin, err := exec.LookPath("nginx")
	if err != nil {
		t.Fatalf("nginx is missing: install the Debian package nginx (make test does): %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	content := `daemon off;
master_process off;
pid ` + dir + `/nginx.pid;
error_log stderr;
events {}
http {
access_log off;
`
	for _, kind := range [...]string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		content += kind + "_temp_path " + dir + "/" + kind + ";\n"
	}
	if err := os.WriteFile(file, []byte(content+strings.TrimSpace(http)+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{name: "nginx", argv: []string{bin, "-p", dir, "-c", file, "-e", "stderr"}, death: syscall.SIGKILL, addr: addr, ready: func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
}

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stockgate/stockgate/internal/testservices"
)

func decode(body string, v any) error { return json.Unmarshal([]byte(body), v) }

func freePort(t *testing.T) int { return testservices.FreePort(t) }

// command sends one inline command to Redis, beside the product, and gives the first line of its reply.
func command(addr, line string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	reply = strings.TrimSpace(reply)
	if err == nil && strings.HasPrefix(reply, "-") {
		err = fmt.Errorf("redis answered %s to %s", reply, line)
	}
	return reply, err
}

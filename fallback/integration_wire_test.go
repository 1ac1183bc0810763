package fallback_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"
)

// send speaks to a Redis without a client: only luascripts may have one.
func send(addr, command, want string) error {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte(command)); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, want) {
		err = fmt.Errorf("redis answered %q", line)
	}
	return err
}

package luascripts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockgate/stockgate/stock"
)

func TestC013_ScriptCacheIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.open(1)
		r.load("s", 1000)
		sent := r.Stats().ScriptsSent
		var all sync.WaitGroup
		for n := range 100 {
			all.Go(func() {
				if n%10 == 0 {
					r.raw.ScriptFlush(ctx)
				}
				if got := r.buy("s", 1, n).Code; got != stock.CacheWon {
					t.Errorf("buyer %d: %v", n, got)
				}
			})
		}
		all.Wait()
		r.want("s", 1000, 100)
		r.raw.ScriptFlush(ctx)
		before := r.Stats()
		r.buy("s", 1, 1000)
		r.buy("s", 1, 1001)
		if got := r.Stats().ScriptsSent - before.ScriptsSent; got != 1 || before.ScriptsSent == sent {
			t.Errorf("the text was sent %d times after a flush", got)
		}
	})
}

// scripted is a server that answers EVALSHA with an error and remembers what it was sent.
type scripted struct {
	listener net.Listener
	reply    string
	mu       sync.Mutex
	verbs    []string
}

func newScripted(t *testing.T, reply string) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{listener: l, reply: reply}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return s
}

func (s *scripted) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		verb, err := readCommand(in)
		if err != nil {
			return
		}
		reply := "+OK\r\n"
		switch verb {
		case "hello":
			reply = "-ERR unknown command\r\n"
		case "evalsha", "eval":
			reply = "-" + s.reply + "\r\n"
			s.mu.Lock()
			s.verbs = append(s.verbs, verb)
			s.mu.Unlock()
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

// readCommand reads one RESP array and gives its first element in lower case.
func readCommand(in *bufio.Reader) (string, error) {
	number := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number()
	verb := ""
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number(); err != nil {
			break
		}
		text := make([]byte, size+2)
		_, err = io.ReadFull(in, text)
		if i == 0 {
			verb = strings.ToLower(string(text[:size]))
		}
	}
	return verb, err
}

func TestC013_OnlyNOSCRIPTSendsTheText(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reply string
		class error
		node  bool
		verbs string
	}{
		{"NOSCRIPT No matching script. Please use EVAL.", stock.ErrNotExecuted, false, "[evalsha eval]"},
		{"MOVED 3999 127.0.0.1:6381", stock.ErrNotExecuted, false, "[evalsha]"},
		{"ASK 3999 127.0.0.1:6381", stock.ErrNotExecuted, false, "[evalsha]"},
		{"TRYAGAIN Multiple keys request during rehashing of slot", stock.ErrNotExecuted, false, "[evalsha]"},
		{"CLUSTERDOWN The cluster is down", stock.ErrNotExecuted, true, "[evalsha]"},
		{"LOADING Redis is loading the dataset in memory", stock.ErrNotExecuted, true, "[evalsha]"},
		{"READONLY You can't write against a read only replica.", stock.ErrNotExecuted, true, "[evalsha]"},
		{"MASTERDOWN Link with MASTER is down", stock.ErrNotExecuted, true, "[evalsha]"},
		{"BUSY Redis is busy running a script.", stock.ErrNotExecuted, true, "[evalsha]"},
		{"OOM command not allowed when used memory > 'maxmemory'.", stock.ErrNotExecuted, true, "[evalsha]"},
		{"BUSYKEY Target key name already exists.", stock.ErrUnknown, false, "[evalsha]"},
		{"ERR Error running script: @user_script:12: WRONGTYPE", stock.ErrUnknown, false, "[evalsha]"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", stock.ErrUnknown, false, "[evalsha]"},
		{"ERR NOSCRIPT is not at the front", stock.ErrUnknown, false, "[evalsha]"},
	}
	for _, c := range cases {
		t.Run(c.reply[:8], func(t *testing.T) {
			t.Parallel()
			s := newScripted(t, c.reply)
			r := newRig(t, Config{Addresses: []string{s.listener.Addr().String()}, PinRunID: true}, nil)
			r.epochs.learn(0, 1, "0123")
			_, err := r.prededuct(context.Background(), wish(1, 1, "s", 1), time.Minute)
			other := stock.ErrUnknown
			if errors.Is(c.class, other) {
				other = stock.ErrNotExecuted
			}
			if !errors.Is(err, c.class) || errors.Is(err, other) || Failure(err) != c.node {
				t.Errorf("%v, failure of the node %v", err, Failure(err))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := fmt.Sprint(s.verbs); got != c.verbs {
				t.Errorf("sent %s, want %s", got, c.verbs)
			}
		})
	}
}

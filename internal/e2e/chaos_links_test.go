package e2e

import (
	"bytes"
	"errors"
	"strings"

	"github.com/stockgate/stockgate/internal/faults"
	"github.com/stockgate/stockgate/internal/testservices"
)

// link is one of the ways between a gateway and its servers.
type link string

const (
	toRedis    link = "redis" // all nodes and sentinels
	toDatabase link = "database"
	toBackend  link = "backend"
)

// links are the fault proxies of one gateway: no other gateway shares them.
type links map[link][]*faults.Proxy

// newLinks puts proxies before the servers. Nodes that name each other's addresses are made to name the proxies of this gateway.
func (c *chaosWorld) newLinks(servers []*testservices.Redis) (links, map[string]string) {
	pass := func(target string) *faults.Proxy {
		p, err := faults.Listen(target)
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(p.Close)
		return p
	}
	l := links{toDatabase: {pass(c.postgres.Addr)}, toBackend: {pass(strings.TrimPrefix(c.backend, "http://"))}}
	instead := map[string]string{}
	for _, r := range servers {
		p := pass(r.Addr)
		instead[r.Addr] = p.Addr()
		l[toRedis] = append(l[toRedis], p)
	}
	for _, p := range l[toRedis] {
		p.Rewrite(func(reply []byte) []byte { return renamed(reply, instead) })
	}
	return l, instead
}

const loopback = "127.0.0.1"

// between are what stands between host and port where servers name an address: an error such as MOVED, a list of slots, a list of strings,
// a message of a sentinel.
var between = []string{":", "\r\n:", "\r\n$5\r\n", " "}

// renamed puts one address in place of another in a reply. The ports must have as many digits, so that no length changes.
func renamed(reply []byte, instead map[string]string) []byte {
	rest := reply
	for {
		i := bytes.Index(rest, []byte(loopback))
		if i < 0 {
			return reply
		}
		rest = rest[i+len(loopback):]
		for _, b := range between {
			at, ok := bytes.CutPrefix(rest, []byte(b))
			if !ok || len(at) < 5 {
				continue
			}
			if to, known := instead[loopback+":"+string(at[:5])]; known {
				copy(at, strings.TrimPrefix(to, loopback+":"))
			}
		}
	}
}

// each does something to every proxy of a link.
func (l links) each(of link, do func(*faults.Proxy) error) error {
	var err error
	for _, p := range l[of] {
		err = errors.Join(err, do(p))
	}
	return err
}

// heal takes every fault of every link back.
func (l links) heal() error {
	var err error
	for of := range l {
		err = errors.Join(err, l.each(of, (*faults.Proxy).Heal))
	}
	return err
}

package luascripts

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed prelude.lua
var preludeSource string

//go:embed reserve.lua
var reserveSource string

//go:embed close.lua
var closeSource string

//go:embed load.lua
var loadSource string

//go:embed open_partition.lua
var openPartitionSource string

//go:embed mark.lua
var markSource string

//go:embed claim.lua
var claimSource string

//go:embed entries.lua
var entriesSource string

//go:embed scan_open.lua
var scanOpenSource string

//go:embed find_open.lua
var findOpenSource string

//go:embed registers.lua
var registersSource string

//go:embed meta.lua
var metaSource string

//go:embed run_id.lua
var runIDSource string

//go:embed lease_tokens.lua
var leaseTokensSource string

// script is one embedded file behind the shared prelude. There are as many scripts as files, ever: nothing of a request becomes part
// of a text (C021).
type script struct {
	name   string
	sha    any // string, 40 hex digits
	source any // string
}

func newScript(name, source string) script {
	text := preludeSource + source
	sum := sha1.Sum([]byte(text))
	return script{name: name, sha: hex.EncodeToString(sum[:]), source: text}
}

// scripts are all that a Client ever sends.
type scripts struct {
	reserve, close, load, claim, openPartition, mark, entries, scanOpen, findOpen, registers, meta, runID, leaseTokens script
}

func newScripts() scripts {
	return scripts{
		reserve:       newScript("reserve", reserveSource),
		close:         newScript("close", closeSource),
		load:          newScript("load", loadSource),
		openPartition: newScript("open_partition", openPartitionSource),
		claim:         newScript("claim", claimSource),
		mark:          newScript("mark", markSource),
		entries:       newScript("entries", entriesSource),
		scanOpen:      newScript("scan_open", scanOpenSource),
		findOpen:      newScript("find_open", findOpenSource),
		registers:     newScript("registers", registersSource),
		meta:          newScript("meta", metaSource),
		runID:         newScript("run_id", runIDSource),
		leaseTokens:   newScript("lease_tokens", leaseTokensSource),
	}
}

// command is one call of a script: its arguments stand one behind another in buf, which is used again for the next call. It may be
// used by one goroutine at a time.
type command struct {
	buf    []byte
	chunks []chunk
	list   []any
	keys   int
	wrote  bool // the client has begun to write the call into a connection
}

// chunk is one argument. It is given to go-redis as a pointer that marshals itself: no string, slice header or interface is made
// for it, and being asked to marshal is the sign that a connection was there and writing began.
type chunk struct {
	c        *command
	from, to int
	shared   any // an argument that stands elsewhere (a string of partitionKeys)
}

// MarshalBinary gives go-redis the argument. The bytes are read before the call returns.
func (k *chunk) MarshalBinary() ([]byte, error) {
	k.c.wrote = true
	return k.c.buf[k.from:k.to], nil
}

// start begins a new call with the keys given.
func (c *command) start(keys ...any) {
	c.buf, c.chunks, c.keys = c.buf[:0], c.chunks[:0], 0
	for _, k := range keys {
		c.key(k)
	}
}

// key, keyOf and keyOfBytes add a key; all keys come before the first argument.
func (c *command) key(shared any) {
	c.keys++
	c.chunks = append(c.chunks, chunk{c: c, shared: shared})
}

func (c *command) keyOf(prefix, name string) {
	c.keys++
	from := len(c.buf)
	c.buf = append(append(c.buf, prefix...), name...)
	c.cut(from)
}

func (c *command) keyOfBytes(prefix string, name []byte) {
	c.keys++
	from := len(c.buf)
	c.buf = append(append(c.buf, prefix...), name...)
	c.cut(from)
}

func (c *command) text(s string) {
	from := len(c.buf)
	c.buf = append(c.buf, s...)
	c.cut(from)
}

func (c *command) bytes(b []byte) {
	from := len(c.buf)
	c.buf = append(c.buf, b...)
	c.cut(from)
}

func (c *command) int(n int64) {
	from := len(c.buf)
	c.buf = strconv.AppendInt(c.buf, n, 10)
	c.cut(from)
}

func (c *command) bool(b bool) {
	if b {
		c.text("1")
	} else {
		c.text("0")
	}
}

func (c *command) cut(from int) {
	c.chunks = append(c.chunks, chunk{c: c, from: from, to: len(c.buf)})
}

// arguments is the whole call in the order of the wire.
func (c *command) arguments(verb, text any) []any {
	from := len(c.buf)
	c.buf = strconv.AppendInt(c.buf, int64(c.keys), 10)
	c.cut(from)
	c.list = append(c.list[:0], verb, text, &c.chunks[len(c.chunks)-1])
	for i := range c.chunks[:len(c.chunks)-1] {
		if k := &c.chunks[i]; k.shared != nil {
			c.list = append(c.list, k.shared)
		} else {
			c.list = append(c.list, k)
		}
	}
	return c.list
}

// noRetry keeps every kind of go-redis client from sending a call again by itself, MaxRetries or not: after a lost reply a second
// execution is ours to decide on.
type noRetry struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (noRetry) NoRetry() bool { return true }

// evaluate sends the call once by its hash. Only NOSCRIPT, with which nothing was executed, leads to sending the text, once (C013), and
// only MOVED and ASK, likewise, to sending it to another node of the cluster. Errors are classified.
func (c *Client) evaluate(ctx context.Context, n *node, s *script, cmd *command) (any, error) {
	list := cmd.arguments("evalsha", s.sha)
	at := place{node: n}
	for hop := 0; ; {
		reply, err := c.send(ctx, &at, list, &cmd.wrote)
		switch text := serverError(err); {
		case strings.HasPrefix(text, "NOSCRIPT") && list[0] == "evalsha":
			c.stats.scriptsSent.Add(1)
			list[0], list[1] = "eval", s.source
		case hop < redirectsMax && c.follow(&at, text):
			hop++
		default:
			return reply, at.classify(err, cmd.wrote, n)
		}
	}
}

// place is where a call goes.
type place struct {
	*node
	asking bool // the slot is on its way there
}

// follow changes the place to where an error reply sends the call.
func (c *Client) follow(at *place, reply string) bool {
	if reply == "" {
		return false
	}
	to, ask := c.servers.redirect(at.node, reply)
	if to == nil {
		return false
	}
	at.node, at.asking = to, ask
	return true
}

// classify is classify for a call that was meant for n: what another node did does not count against n.
func (at *place) classify(err error, wrote bool, n *node) error {
	err = classify(err, wrote)
	if f := (*failure)(nil); at.node != n && errors.As(err, &f) {
		f.node = false
	}
	return err
}

// errNowhere: the slots of the cluster are not known, or one has no master.
var errNowhere = errors.New("no master of the slot is known")

// send sends a call once. wrote says afterwards whether some of it was put into a connection.
func (c *Client) send(ctx context.Context, at *place, list []any, wrote *bool) (any, error) {
	*wrote = false
	if at.rdb == nil {
		return nil, errNowhere
	}
	cmd := redis.NewCmd(ctx, list...)
	if !at.asking {
		err := at.rdb.Process(ctx, noRetry{cmd})
		return cmd.Val(), err
	}
	pipe := at.rdb.Pipeline()
	_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
	_ = pipe.Process(ctx, noRetry{cmd})
	_, _ = pipe.Exec(ctx)
	return cmd.Val(), cmd.Err()
}

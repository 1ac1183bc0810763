package luascripts

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
	_ "embed"
	"encoding/hex"
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

//go:embed ids_loaded.lua
var idsLoadedSource string

//go:embed entries.lua
var entriesSource string

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
	reserve, close, load, openPartition, idsLoaded, entries, registers, meta, runID, leaseTokens script
}

func newScripts() scripts {
	return scripts{
		reserve:       newScript("reserve", reserveSource),
		close:         newScript("close", closeSource),
		load:          newScript("load", loadSource),
		openPartition: newScript("open_partition", openPartitionSource),
		idsLoaded:     newScript("ids_loaded", idsLoadedSource),
		entries:       newScript("entries", entriesSource),
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

// evaluate sends the call once by its hash. Only NOSCRIPT, with which nothing was executed, leads to sending the text, once (C013).
// Errors are classified.
func (c *Client) evaluate(ctx context.Context, s *script, cmd *command) (any, error) {
	cmd.wrote = false
	list := cmd.arguments("evalsha", s.sha)
	reply, err := c.process(ctx, list)
	if strings.HasPrefix(serverError(err), "NOSCRIPT") {
		c.stats.scriptsSent.Add(1)
		cmd.wrote = false
		list[0], list[1] = "eval", s.source
		reply, err = c.process(ctx, list)
	}
	return reply, classify(err, cmd.wrote)
}

func (c *Client) process(ctx context.Context, list []any) (any, error) {
	cmd := redis.NewCmd(ctx, list...)
	err := c.rdb.Process(ctx, noRetry{cmd})
	return cmd.Val(), err
}

package luascripts

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The kinds of Redis that a Client speaks to.
const (
	ModeStandalone = "standalone" // one server, or one address in front of it
	ModeSentinel   = "sentinel"   // the master that sentinels name
	ModeCluster    = "cluster"    // the masters of a Redis Cluster
	ModeEmbedded   = "embedded"   // a miniredis in this process, for the demo; its contents end with the Client
)

// Defaults and bounds of Config.
const (
	poolSizeDefault   = 32
	timeoutDefault    = 50 * time.Millisecond
	prefixDefault     = "stockgate"
	partitionsDefault = 64
	partitionsMax     = 1 << 16
	keepDefault       = 24 * time.Hour
	batchMaxDefault   = 128 // more gains nothing and makes one script hold the server for too long
	pendingMaxDefault = 8192
	linesMax          = 512 // lines in one batch: bounds the arguments that a script unpacks at once

	// embeddedTimeout is the least time-out of the embedded Redis. It is slower than a real one, and cannot be cut off from us.
	embeddedTimeout = time.Second

	// keyTTL is how long a key lives without use. It is finite so that what nobody uses goes by itself, and long so that nothing
	// in use ever does.
	keyTTL = 30 * 24 * time.Hour
)

// Config is what a Client needs to know. The zero value of a field means its default.
type Config struct {
	// Mode is one of the kinds above. Defaults to standalone.
	Mode string
	// Addresses has the host:port of the server; standalone takes exactly one, embedded none. For sentinel they are those of sentinels,
	// for cluster those of some nodes: the others are learned from them.
	Addresses []string
	// MasterName is what the sentinels call the master; sentinel only, and needed there.
	MasterName string
	// SentinelUsername and SentinelPassword authenticate connections to the sentinels; "" = none.
	SentinelUsername, SentinelPassword string
	// Username and Password authenticate every connection; "" = none.
	Username, Password string
	// TLS, if not nil, wraps every connection.
	TLS *tls.Config
	// PoolSize bounds the connections to one node, 2 or more. One is kept for RunIDOf, the breaker's probe. Defaults to 32.
	PoolSize int
	// Timeout bounds dialling, waiting for a connection, and one call. Past it the answer is unknown. Defaults to 50 ms; the
	// embedded Redis gets at least 1 s.
	Timeout time.Duration
	// Prefix starts every key; it may not hold braces. Defaults to stockgate.
	Prefix string
	// Partitions is P, 1 … 65536, fixed for the life of a deployment. Defaults to 64.
	Partitions int
	// AllowEviction lets Check pass a server whose maxmemory policy may drop keys.
	AllowEviction bool
	// AnswersKeep is how long the record of a won id stays. Defaults to 24 h.
	AnswersKeep time.Duration
	// PinRunID makes every script compare the run id of the server that executes it with the one that was loaded. Without it lost
	// writes (a restart, a failover) are not noticed; only for servers that refuse INFO in scripts. The embedded Redis has no run
	// id: the pin is skipped there.
	PinRunID bool
	// BatchMax bounds the reservations, closings or facts of one call, 1 … 128. Defaults to 128.
	BatchMax int
	// PendingMax bounds, per partition, the reservations that wait for a call, and likewise closings and facts. Defaults to 8192.
	PendingMax int
	// Ramp is how many calls a second for buyers a node gets at first after its breaker has closed; they double each 250 ms until they
	// bind no more. Reservations and claims wait for their turn until their own deadlines. 0 … 100,000; 0: no ramp.
	Ramp int
}

// withDefaults is a completed copy.
func (c Config) withDefaults() Config {
	c.Mode = cmp.Or(c.Mode, ModeStandalone)
	c.PoolSize = cmp.Or(c.PoolSize, poolSizeDefault)
	c.Timeout = cmp.Or(c.Timeout, timeoutDefault)
	c.Prefix = cmp.Or(c.Prefix, prefixDefault)
	c.Partitions = cmp.Or(c.Partitions, partitionsDefault)
	c.AnswersKeep = cmp.Or(c.AnswersKeep, keepDefault)
	c.BatchMax = cmp.Or(c.BatchMax, batchMaxDefault)
	c.PendingMax = cmp.Or(c.PendingMax, pendingMaxDefault)
	if c.Mode == ModeEmbedded {
		c.PinRunID = false
		c.Timeout = max(c.Timeout, embeddedTimeout)
	}
	return c
}

// validate names everything that is wrong with a completed Config.
func (c Config) validate() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	switch c.Mode {
	case ModeStandalone:
		if len(c.Addresses) != 1 {
			complain("redis.addresses has %d entries, mode standalone takes exactly 1", len(c.Addresses))
		}
	case ModeSentinel, ModeCluster:
		if len(c.Addresses) == 0 {
			complain("redis.addresses is empty, mode %s needs at least 1", c.Mode)
		}
	case ModeEmbedded:
	default:
		complain("redis.mode is %q, allowed are standalone, sentinel, cluster and embedded", c.Mode)
	}
	if (c.Mode == ModeSentinel) != (c.MasterName != "") {
		complain("redis.master_name is %q with redis.mode %s: sentinel needs it, no other mode takes it", c.MasterName, c.Mode)
	}
	between := func(name string, value, least, most int) {
		if value < least || value > most {
			complain("%s is %d, allowed are %d to %d", name, value, least, most)
		}
	}
	between("redis.pool_size", c.PoolSize, 2, 10_000)
	between("redis.partitions", c.Partitions, 1, partitionsMax)
	between("redis.batch_max", c.BatchMax, 1, batchMaxDefault)
	between("redis.pending_max", c.PendingMax, 1, 1<<20)
	between("redis.ramp", c.Ramp, 0, rampEnd)
	if c.Timeout < time.Millisecond {
		complain("redis.timeout is %s, at least 1ms is needed", c.Timeout)
	}
	if c.AnswersKeep < time.Second || c.AnswersKeep > keyTTL {
		complain("answers.keep is %s, allowed are 1s to %s", c.AnswersKeep, keyTTL)
	}
	if strings.ContainsAny(c.Prefix, "{} \r\n") {
		complain("redis.prefix is %q, it may hold no braces, blanks or line ends", c.Prefix)
	}
	return errors.Join(problems...)
}

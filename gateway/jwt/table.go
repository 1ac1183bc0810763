package jwt

import "sync"

// hash is the SHA-256 of a token.
type hash [32]byte

// table remembers verified tokens. Two maps: when the newer is full, the older is dropped and the newer takes its place.
type table struct {
	half int // entries of one map

	mu       sync.Mutex
	now, old map[hash]*Claims
}

func newTable(most int) *table { return &table{half: max(1, most/2), now: map[hash]*Claims{}} }

func (t *table) get(h *hash) *Claims {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c, ok := t.now[*h]; ok {
		return c
	}
	c, ok := t.old[*h]
	if ok {
		t.put(h, c)
	}
	return c
}

func (t *table) add(h *hash, c *Claims) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(h, c)
}

// put is called with the lock held.
func (t *table) put(h *hash, c *Claims) {
	if len(t.now) >= t.half {
		t.old, t.now = t.now, make(map[hash]*Claims, len(t.now)/8)
	}
	t.now[*h] = c
}

func (t *table) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.old = map[hash]*Claims{}, nil
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.now) + len(t.old)
}

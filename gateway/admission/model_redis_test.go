package admission

import (
	"context"
	"sync"
	"time"

	"github.com/stockgate/stockgate/stock"
)

// modelRedis is Redis in memory, as far as one SKU of one partition goes: registers, open, records and claims, by the rules of stock's
// types. All partitions' claims are in one.
type modelRedis struct {
	mu     sync.Mutex
	epoch  int64
	shut   bool // not open for selling ahead
	fact   stock.Fact
	open   map[stock.ID]modelEntry
	known  map[stock.ID]stock.Try // id records
	claims map[stock.ID]modelClaim
	fate   func() modelFate // of the next call; nil: it is answered
	late   []func()         // calls that were lost and come later
}

type modelEntry struct {
	r     stock.Reservation
	ahead bool
}

type modelClaim struct {
	try         stock.Try
	fingerprint uint64
	owner       string
}

// modelFate is what becomes of a call.
type modelFate int

const (
	answered   modelFate = iota
	refused              // not executed
	replyLost            // executed, and nobody hears
	lost                 // never executed, and nobody hears
	comesLater           // executed later, and nobody hears
)

func newModelRedis() *modelRedis {
	return &modelRedis{epoch: 1, open: map[stock.ID]modelEntry{}, known: map[stock.ID]stock.Try{}, claims: map[stock.ID]modelClaim{}}
}

// call lets fate decide about one call, which is made under the epoch of its caller.
func (m *modelRedis) call(do func(epoch int64)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch, fate := m.epoch, answered
	if m.fate != nil {
		fate = m.fate()
	}
	switch fate {
	case refused:
		return stock.ErrNotExecuted
	case lost:
		return stock.ErrUnknown
	case comesLater:
		m.late = append(m.late, func() { do(epoch) })
		return stock.ErrUnknown
	case replyLost:
		do(epoch)
		return stock.ErrUnknown
	}
	do(epoch)
	return nil
}

func (m *modelRedis) Reserve(_ context.Context, _ int, r *stock.Reservation, _ time.Duration, ahead bool) (stock.CacheReply, error) {
	reply, copied := stock.CacheReply{}, *r
	if err := m.call(func(epoch int64) { reply = m.reserveLocked(epoch, &copied, ahead, true) }); err != nil {
		return stock.CacheReply{}, err // a late call still writes its reply, which nobody hears
	}
	return reply, nil
}

func (m *modelRedis) Peek(_ context.Context, _ int, r *stock.Reservation) (stock.CacheReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reserveLocked(m.epoch, r, false, false), nil
}

func (m *modelRedis) reserveLocked(epoch int64, r *stock.Reservation, ahead, take bool) stock.CacheReply {
	reply := stock.CacheReply{SKU: "s", Epoch: m.epoch, IDsLoaded: true, Base: m.fact.Base(), Rest: m.fact.Rest(), Ver: m.fact.Ver, Ahead: m.fact.Ahead}
	entry, isOpen := m.open[r.ID]
	try, isKnown := m.known[r.ID]
	qty, free := r.Lines[0].Qty, m.freeLocked()
	switch {
	case epoch != m.epoch:
		reply.Code = stock.CacheStale
	case isOpen && entry.r.Try == r.Try:
		reply.Code = stock.CacheWon
	case isOpen || isKnown:
		if isOpen {
			try = entry.r.Try
		}
		reply.Code, reply.KnownTry, reply.KnownFingerprint, reply.KnownOpen = stock.CacheDuplicate, try, r.Fingerprint, isOpen
	case ahead && m.shut:
		reply.Code = stock.CacheDraining
	case qty > m.fact.Left():
		reply.Code = stock.CacheSoldOut
	case qty > free || ahead && !m.fact.Ahead:
		reply.Code = stock.CacheWait
	default:
		reply.Code = stock.CacheWon
		if take {
			m.open[r.ID], m.known[r.ID] = modelEntry{*r, ahead}, r.Try
		}
	}
	reply.Free = m.freeLocked()
	return reply
}

func (m *modelRedis) freeLocked() int64 {
	free := m.fact.Base()
	for _, e := range m.open {
		free -= e.r.Lines[0].Qty
	}
	return free
}

func (m *modelRedis) Close(_ int, closings []stock.Closing, facts []stock.Fact) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range closings {
		switch {
		case c.Claim:
			m.closeClaimLocked(c)
			continue
		case m.open[c.ID].r.Try == c.Try:
			delete(m.open, c.ID)
		}
		if c.Won {
			m.known[c.ID] = c.Try
		} else if m.known[c.ID] == c.Try {
			delete(m.known, c.ID)
		}
	}
	for _, f := range facts {
		if f.Ver > m.fact.Ver {
			m.fact = f
		}
	}
}

func (m *modelRedis) closeClaimLocked(c stock.Closing) {
	if c.Won {
		m.claims[c.ID] = modelClaim{try: c.Try, fingerprint: c.Fingerprint}
	} else if m.claims[c.ID].try == c.Try {
		delete(m.claims, c.ID)
	}
}

func (m *modelRedis) Load(context.Context, int, []stock.Fact) (bool, error) { return false, nil }

func (m *modelRedis) Claim(_ context.Context, _ int, r *stock.Reservation, _ time.Duration, replace stock.Try) (stock.ClaimReply, error) {
	var reply stock.ClaimReply
	mine := modelClaim{r.Try, r.Fingerprint, r.Owner}
	err := m.call(func(epoch int64) {
		standing, taken := m.claims[r.ID]
		reply = stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: true, Epoch: m.epoch}
		switch {
		case epoch != m.epoch:
			reply.Code = stock.ClaimStale
		case m.shut:
			reply.Code = stock.ClaimDraining
		case !taken || standing.try == replace:
			m.claims[r.ID] = mine
		case standing.try != mine.try:
			reply.Code, reply.KnownTry, reply.KnownFingerprint, reply.KnownOwner = stock.ClaimTaken, standing.try, standing.fingerprint, standing.owner
		}
	})
	if err != nil {
		return stock.ClaimReply{}, err
	}
	return reply, nil
}

func (m *modelRedis) FindOpen(_ context.Context, id stock.ID) ([]stock.OpenEntry, error) {
	for _, e := range m.entries() {
		if e.ID == id {
			return []stock.OpenEntry{e}, nil
		}
	}
	return nil, nil
}

func (m *modelRedis) entries() []stock.OpenEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []stock.OpenEntry
	for _, e := range m.open {
		all = append(all, stock.OpenEntry{Reservation: e.r, Ahead: e.ahead, Epoch: m.epoch})
	}
	return all
}

// arrive executes what was lost on the way.
func (m *modelRedis) arrive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, do := range m.late {
		do()
	}
	m.late = nil
}

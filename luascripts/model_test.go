package luascripts

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stockgate/stockgate/stock"
)

// model is what Redis has to do, written down without any thought of speed or of Redis. out is not kept but added up, so that it
// cannot be wrong.
type model struct {
	epoch, idsEpoch int64
	openEpoch       int64 // under which its SKUs may sell ahead and ids be claimed
	skus            map[string]*modelSKU
	open            map[stock.ID]*stock.Reservation
	ahead           map[stock.ID]bool // which of them went ahead
	claims          map[stock.ID]claim
	records         map[stock.ID]stock.Closing // try and fingerprint
	takes           map[stock.UserTake]take    // by what they are of, Qty 0
}

type modelSKU struct {
	epoch, ver, base, rest int64
	paused, ahead          bool
}

// claim is who has an id.
type claim struct {
	try         stock.Try
	fingerprint uint64
	owner       string
}

func newModel() *model {
	return &model{skus: map[string]*modelSKU{}, open: map[stock.ID]*stock.Reservation{}, ahead: map[stock.ID]bool{}, claims: map[stock.ID]claim{}, records: map[stock.ID]stock.Closing{},
		takes: map[stock.UserTake]take{}}
}

func (m *model) out(sku string) (n int64) {
	for _, r := range m.open {
		for _, l := range r.Lines {
			if l.SKU == sku {
				n += l.Qty
			}
		}
	}
	return n
}

// reserve answers a batch. What is free is told as it is after all of them.
func (m *model) reserve(epoch int64, batch []asked) []stock.CacheReply {
	replies := make([]stock.CacheReply, len(batch))
	for i, a := range batch {
		replies[i] = m.reserveOne(epoch, a)
	}
	for i := range replies {
		if replies[i].Ahead {
			replies[i].Free = replies[i].Base - m.out(replies[i].SKU)
		}
	}
	return replies
}

func (m *model) reserveOne(epoch int64, a asked) stock.CacheReply {
	if epoch != m.epoch {
		return stock.CacheReply{Code: stock.CacheStale}
	}
	r := a.Reservation
	reply := m.decide(r, a.ahead)
	reply.IDsLoaded, reply.Epoch = m.idsEpoch == m.epoch, epoch
	if reply.Code == stock.CacheWon && m.open[r.ID] == nil && a.ttl != peek {
		m.open[r.ID], m.ahead[r.ID] = r, a.ahead
		m.records[r.ID] = won(r)
	}
	return reply
}

func (m *model) decide(r *stock.Reservation, ahead bool) stock.CacheReply {
	entry, record := m.open[r.ID], m.records[r.ID]
	if record.Try != 0 {
		return m.known(r, record, entry)
	}
	if ahead && m.openEpoch != m.epoch {
		return stock.CacheReply{Code: stock.CacheDraining, SKU: firstOwn(r)}
	}
	code, sku := stock.CacheWon, firstOwn(r)
	for i, l := range r.Lines {
		if c := m.line(l, r.User, r.TermsOf(i), ahead); own(l.SKU) && c < code {
			code, sku = c, l.SKU
		}
	}
	if code == stock.CacheWon && entry != nil {
		return m.known(r, won(entry), entry) // its record was lost: nobody can win an id twice
	}
	return m.tell(code, sku)
}

func (m *model) known(r *stock.Reservation, record stock.Closing, entry *stock.Reservation) stock.CacheReply {
	if entry != nil && entry.Try == r.Try {
		return m.tell(stock.CacheWon, firstOwn(r))
	}
	return stock.CacheReply{Code: stock.CacheDuplicate, KnownTry: record.Try, KnownFingerprint: record.Fingerprint,
		KnownOpen: entry != nil && entry.Try == record.Try}
}

// own reports whether a SKU is of partition 0 of two, where all happens.
func own(sku string) bool { return stock.Partition(sku, 2) == 0 }

// firstOwn is the SKU that tells of a win.
func firstOwn(r *stock.Reservation) string {
	for _, l := range r.Lines {
		if own(l.SKU) {
			return l.SKU
		}
	}
	return ""
}

func (m *model) line(l stock.Line, user string, terms stock.LineTerms, ahead bool) stock.CacheCode {
	s, has := m.skus[l.SKU], m.takes[stock.UserTake{Activity: terms.Activity, SKU: l.SKU, User: user}]
	switch {
	case s == nil || s.epoch != m.epoch:
		return stock.CacheNotLoaded
	case s.paused:
		return stock.CachePaused
	case terms.Limit > 0 && user != "" && has.epoch == m.epoch && has.Qty+l.Qty > terms.Limit:
		return stock.CacheLimit
	case l.Qty > s.base+s.rest:
		return stock.CacheSoldOut
	case l.Qty > s.base-m.out(l.SKU), ahead && !s.ahead:
		return stock.CacheWait
	}
	return stock.CacheWon
}

func (m *model) tell(code stock.CacheCode, sku string) stock.CacheReply {
	reply := stock.CacheReply{Code: code, SKU: sku}
	if s := m.skus[sku]; s != nil && s.epoch == m.epoch {
		reply.Base, reply.Rest, reply.Ver, reply.Ahead = s.base, s.rest, s.ver, s.ahead
	}
	return reply
}

func (m *model) close(epoch int64, closings []stock.Closing, facts []stock.Fact) (stale bool) {
	if epoch != m.epoch {
		return true
	}
	for _, k := range closings {
		if k.Claim {
			m.closeClaim(k)
			continue
		}
		if e := m.open[k.ID]; e != nil && e.Try == k.Try {
			delete(m.open, k.ID)
		}
		if k.Won {
			m.records[k.ID] = k
		} else if m.records[k.ID].Try == k.Try {
			delete(m.records, k.ID)
		}
	}
	for _, f := range facts {
		if s := m.skus[f.SKU]; s != nil && s.epoch == m.epoch && f.Epoch == m.epoch && f.Ver > s.ver {
			m.put(f)
		}
		m.hear(f)
	}
	return false
}

func (m *model) closeClaim(k stock.Closing) {
	if k.Won {
		m.claims[k.ID] = claim{try: k.Try, fingerprint: k.Fingerprint}
	} else if m.claims[k.ID].try == k.Try {
		delete(m.claims, k.ID)
	}
}

func (m *model) claim(epoch int64, r *stock.Reservation, replace stock.Try) stock.ClaimReply {
	switch {
	case epoch != m.epoch:
		return stock.ClaimReply{Code: stock.ClaimStale}
	case m.openEpoch != m.epoch:
		return stock.ClaimReply{Code: stock.ClaimDraining, Epoch: epoch}
	}
	reply, has := stock.ClaimReply{Code: stock.ClaimOurs, IDsLoaded: m.idsEpoch == m.epoch, Epoch: epoch}, m.claims[r.ID]
	switch {
	case has.try == r.Try:
	case has.try == 0 || has.try == replace:
		m.claims[r.ID] = claim{r.Try, r.Fingerprint, r.Owner}
	default:
		reply.Code, reply.KnownTry, reply.KnownFingerprint, reply.KnownOwner = stock.ClaimTaken, has.try, has.fingerprint, has.owner
	}
	return reply
}

// hear keeps what a fact says of users, if it is of this epoch and newer.
func (m *model) hear(f stock.Fact) {
	for _, u := range f.Takes {
		of := u
		of.Qty = 0
		is := m.takes[of]
		if f.Epoch == m.epoch && (f.Epoch > is.epoch || f.Epoch == is.epoch && f.Ver > is.ver) {
			m.takes[of] = take{f.Epoch, f.Ver, u}
		}
	}
}

func (m *model) load(epoch int64, facts []stock.Fact) (stale bool) {
	if epoch != m.epoch {
		return true
	}
	for _, f := range facts {
		if f.Epoch != m.epoch {
			return true
		}
	}
	for _, f := range facts {
		s := m.skus[f.SKU]
		missing := s == nil || s.epoch != m.epoch
		if missing && f.Ahead && m.openEpoch != m.epoch {
			m.hear(f)
			continue // it would be loaded while nobody knows what was sold from its grant
		}
		if missing || f.Ver > s.ver {
			m.put(f)
		}
		m.hear(f)
	}
	return false
}

func (m *model) put(f stock.Fact) {
	s := &modelSKU{epoch: f.Epoch, ver: f.Ver, base: f.Available, rest: f.Granted, paused: f.Paused, ahead: f.Ahead}
	if f.Ahead {
		s.base, s.rest = f.Granted-f.Doubtful, f.Available+f.Doubtful
	}
	m.skus[f.SKU] = s
}

// What the machine draws from: few ids, tries, SKUs and users, so that they meet. A cart may have a line of the other partition, which
// must change nothing.
var (
	modelSKUs       = []string{"d", "e", "f"}
	modelUsers      = []string{"", "u", "|,\x00"}
	modelActivities = []string{"", "u"}
)

const elsewhere = "a" // comes first among the lines

func drawReservation(t *rapid.T) *stock.Reservation {
	var lines []stock.Line
	for _, sku := range append([]string{elsewhere}, modelSKUs...) {
		if qty := rapid.Int64Range(-3, 4).Draw(t, "qty "+sku); qty > 0 {
			lines = append(lines, stock.Line{SKU: sku, Qty: qty})
		}
	}
	if lines == nil || len(lines) == 1 && lines[0].SKU == elsewhere {
		lines = append(lines, stock.Line{SKU: modelSKUs[0], Qty: 1})
	}
	id := stock.ID{15: byte(rapid.IntRange(1, 6).Draw(t, "id"))}
	try := stock.Try(rapid.Uint64Range(1, 3).Draw(t, "try"))
	return &stock.Reservation{ID: id, Try: try, Fingerprint: uint64(try) * 7, Lines: lines, Route: "r", Owner: "gw",
		User: rapid.SampledFrom(modelUsers).Draw(t, "user"), Terms: drawTerms(t, len(lines))}
}

// drawTerms is nil for half of all reservations.
func drawTerms(t *rapid.T, lines int) []stock.LineTerms {
	if rapid.Bool().Draw(t, "no terms") {
		return nil
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) stock.LineTerms {
		return stock.LineTerms{Activity: rapid.SampledFrom(modelActivities).Draw(t, "activity"), Limit: rapid.Int64Range(0, 4).Draw(t, "limit")}
	}), lines, lines).Draw(t, "terms")
}

// drawAsked is a reservation or a peek.
func drawAsked(t *rapid.T) asked {
	a := asked{drawReservation(t), rapid.SampledFrom([]int64{60_000, 60_000, peek}).Draw(t, "ttl"), false}
	a.ahead = a.ttl != peek && rapid.Bool().Draw(t, "ahead")
	return a
}

func drawClosing(t *rapid.T) stock.Closing {
	r := drawReservation(t)
	k := lost(r)
	if rapid.Bool().Draw(t, "won") {
		k = won(r)
	}
	k.Claim = rapid.IntRange(0, 3).Draw(t, "claim") == 0
	return k
}

func drawFact(t *rapid.T, epoch int64) stock.Fact {
	sku := rapid.SampledFrom(modelSKUs).Draw(t, "sku")
	takes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) stock.UserTake {
		return stock.UserTake{Activity: rapid.SampledFrom(modelActivities).Draw(t, "activity"), SKU: sku,
			User: rapid.SampledFrom(modelUsers).Draw(t, "user"), Qty: rapid.Int64Range(0, 4).Draw(t, "has")}
	}), 0, 2).Draw(t, "takes")
	granted := rapid.Int64Range(0, 5).Draw(t, "granted")
	return stock.Fact{SKU: sku, Takes: takes, Available: rapid.Int64Range(0, 8).Draw(t, "available"), Granted: granted,
		Ahead: rapid.Bool().Draw(t, "ahead"), Doubtful: rapid.SampledFrom([]int64{0, 0, granted / 2, granted}).Draw(t, "doubtful"), Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
		Epoch: max(1, epoch+rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -1, 1}).Draw(t, "of")), Ver: rapid.Int64Range(1, 30).Draw(t, "ver")}
}

// TestModel runs random sequences of reserve, claim, close and load, for SKUs that sell ahead and others, in partitions that are open for
// that and others, repeated, reordered, with other tries and other epochs, against the
// model. After each step everything in Redis is compared: so out = sum of open, out ≥ 0, and no unit is given twice.
func TestModel(t *testing.T) {
	onBothParted(t, 2, func(t *testing.T, r *rig) {
		runID := mustRunID(r)
		rapid.Check(t, func(rt *rapid.T) {
			r.raw.FlushAll(context.Background())
			machine := &machine{r: r, m: newModel(), runID: runID}
			machine.begin(rt)
			rt.Repeat(map[string]func(*rapid.T){
				"reserve": machine.reserve, "claim": machine.claim, "ahead": machine.openAhead, "close": machine.close, "load": machine.load, "begin": machine.begin,
				"learn": machine.learn, "forget": machine.forget, "ids": machine.ids, "": machine.compare,
			})
		})
	})
}

// machine drives a Client and the model in step.
type machine struct {
	r     *rig
	m     *model
	runID string
	knows int64 // the epoch that the replica has learned
}

// begin opens the next epoch, in Redis; the replica mostly learns of it.
func (s *machine) begin(t *rapid.T) {
	s.m.epoch += rapid.Int64Range(1, 2).Draw(t, "up")
	if err := s.r.OpenPartition(context.Background(), 0, s.m.epoch, s.runID); err != nil {
		t.Fatal(err)
	}
	if s.knows == 0 || rapid.IntRange(0, 3).Draw(t, "missed") > 0 {
		s.know(s.m.epoch)
	}
}

func (s *machine) know(epoch int64) {
	s.knows = epoch
	s.r.epochs.learn(0, epoch, s.runID)
}

func (s *machine) learn(*rapid.T) { s.know(s.m.epoch) }

func (s *machine) ids(t *rapid.T) {
	err := s.r.SetIDsLoaded(context.Background(), 0, s.knows)
	if (err == nil) != (s.knows == s.m.epoch) {
		t.Fatalf("ids loaded under %d at %d: %v", s.knows, s.m.epoch, err)
	}
	if err == nil {
		s.m.idsEpoch = s.knows
	}
}

func (s *machine) reserve(t *rapid.T) {
	all := rapid.SliceOfN(rapid.Custom(drawAsked), 1, 6).Draw(t, "batch")
	got := s.r.batchIn(0, all...)
	for i, want := range s.m.reserve(s.knows, all) {
		if got[i] != want {
			t.Fatalf("item %d %+v:\ngot  %+v\nwant %+v", i, all[i], got[i], want)
		}
	}
}

// claim claims ids of partition 0. Another try's may be named, or one that does not stand.
func (s *machine) claim(t *rapid.T) {
	all := rapid.SliceOfN(rapid.Custom(drawClaim), 1, 6).Draw(t, "batch")
	got := s.r.claimBatch(all...)
	for i, a := range all {
		if want := s.m.claim(s.knows, a.Reservation, a.replace); got[i] != want {
			t.Fatalf("item %d %+v:\ngot  %+v\nwant %+v", i, a, got[i], want)
		}
	}
}

func drawClaim(t *rapid.T) claimed {
	r := drawReservation(t)
	for stock.ClaimPartition(r.ID, 2) != 0 {
		r.ID[15] += 6
	}
	r.Owner = rapid.SampledFrom([]string{"gw-1", "", "|:"}).Draw(t, "owner")
	return claimed{r, stock.Try(rapid.Uint64Range(0, 4).Draw(t, "replace"))}
}

func (s *machine) openAhead(t *rapid.T) {
	err := s.r.OpenAhead(context.Background(), 0, s.knows)
	if (err == nil) != (s.knows == s.m.epoch) {
		t.Fatalf("open ahead under %d at %d: %v", s.knows, s.m.epoch, err)
	}
	if err == nil {
		s.m.openEpoch = s.knows
	}
}

func (s *machine) close(t *rapid.T) {
	closings := rapid.SliceOfN(rapid.Custom(drawClosing), 0, 5).Draw(t, "closings")
	facts := rapid.SliceOfN(rapid.Custom(s.fact), 0, 4).Draw(t, "facts")
	got, err := s.r.CloseNow(context.Background(), 0, closings, facts)
	if err != nil {
		t.Fatal(err)
	}
	applicable := len(closings) + ofEpoch(facts, s.knows)
	ahead := aheadOf(facts, s.knows) // the rest is done all the same
	if want := s.m.close(s.knows, closings, facts); got != (want && applicable > 0 || ahead) {
		t.Fatalf("stale %v, want %v", got, want)
	}
}

func (s *machine) load(t *rapid.T) {
	facts := rapid.SliceOfN(rapid.Custom(s.fact), 1, 4).Draw(t, "facts")
	got, err := s.r.Load(context.Background(), 0, facts)
	if err != nil {
		t.Fatal(err)
	}
	if want := ofEpoch(facts, s.knows) < len(facts) || s.m.load(s.knows, facts); got != want {
		t.Fatalf("stale %v, want %v", got, want)
	}
}

func (s *machine) fact(t *rapid.T) stock.Fact { return drawFact(t, s.knows) }

// forget deletes what a TTL or an eviction could.
func (s *machine) forget(t *rapid.T) {
	k := s.r.keys[0]
	switch rapid.SampledFrom([]string{"sku", "record", "due", "take", "claim"}).Draw(t, "what") {
	case "sku":
		delete(s.m.skus, "d")
		s.r.raw.Del(context.Background(), k.sku+"d")
	case "take":
		of := stock.UserTake{SKU: "e", User: "u"}
		delete(s.m.takes, of)
		s.r.raw.Del(context.Background(), s.r.takeKey(of.SKU, of.Activity, of.User))
	case "claim":
		id := stock.ID{15: 3}
		delete(s.m.claims, id)
		s.r.raw.Del(context.Background(), k.claim+id.String())
	case "record":
		id := stock.ID{15: 3}
		delete(s.m.records, id)
		s.r.raw.Del(context.Background(), k.id+id.String())
	case "due":
		s.r.raw.Del(context.Background(), k.due.(string))
	}
}

// compare looks at everything in Redis.
func (s *machine) compare(t *rapid.T) {
	ctx := context.Background()
	all, err := s.r.Registers(ctx, modelSKUs)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range all {
		is := s.m.skus[got.SKU]
		loaded := is != nil && is.epoch == s.m.epoch
		if got.Loaded != loaded {
			t.Fatalf("%s loaded %v, want %v", got.SKU, got.Loaded, loaded)
		}
		want := stock.Registers{SKU: got.SKU, Loaded: true, Out: s.m.out(got.SKU)}
		if loaded {
			want.Base, want.Rest, want.Epoch, want.Ver, want.Paused, want.Ahead = is.base, is.rest, is.epoch, is.ver, is.paused, is.ahead
			if got != want {
				t.Fatalf("got  %+v\nwant %+v", got, want)
			}
		}
	}
	entries, _, err := s.r.OpenEntries(ctx, 0, "", 100)
	if err != nil || len(entries) != len(s.m.open) {
		t.Fatalf("%d open entries, want %d, %v", len(entries), len(s.m.open), err)
	}
	for _, e := range entries {
		if want := s.m.open[e.ID]; want == nil || fmt.Sprint(*want) != fmt.Sprint(e.Reservation) || e.Ahead != s.m.ahead[e.ID] || e.Epoch != s.m.epoch {
			t.Fatalf("entry %+v, want %+v", e.Reservation, want)
		}
		for i, l := range slices.DeleteFunc(slices.Clone(e.Lines), func(l stock.Line) bool { return !own(l.SKU) }) {
			if i >= len(e.Out) || e.Out[i] != l {
				t.Fatalf("entry %+v counts %v", e.Reservation, e.Out)
			}
		}
	}
	for n := range byte(7) {
		id := stock.ID{15: n}
		got := s.r.raw.Get(ctx, s.r.keys[0].id+id.String()).Val()
		want := ""
		if k := s.m.records[id]; k.Try != 0 {
			want = string(appendRecord(nil, k.Try, k.Fingerprint))
		}
		if got != want {
			t.Fatalf("record of %s is %q, want %q", id, got, want)
		}
	}
	s.compareTakes(t)
	s.compareClaims(t)
}

func (s *machine) compareClaims(t *rapid.T) {
	stands := s.r.raw.Keys(context.Background(), "*:claim:*").Val()
	if len(stands) != len(s.m.claims) {
		t.Fatalf("%d claims, want %d: %q", len(stands), len(s.m.claims), stands)
	}
	for id, want := range s.m.claims {
		got := s.r.raw.Get(context.Background(), s.r.keys[0].claim+id.String()).Val()
		if got != string(appendRecord(nil, want.try, want.fingerprint))+"|"+want.owner {
			t.Fatalf("claim of %s is %q, want %+v", id, got, want)
		}
	}
}

func (s *machine) compareTakes(t *rapid.T) {
	stands := s.r.raw.Keys(context.Background(), "*:take:*").Val()
	if len(stands) != len(s.m.takes) {
		t.Fatalf("%d take registers, want %d: %q", len(stands), len(s.m.takes), stands)
	}
	for of, want := range s.m.takes {
		got := s.r.raw.Get(context.Background(), s.r.takeKey(of.SKU, of.Activity, of.User)).Val()
		if got != string(appendTake(nil, &want)) {
			t.Fatalf("%+v is %q, want %+v", of, got, want)
		}
	}
}

package control

import "sync"

// Phase is where a replica stands between start and end.
type Phase uint8

// The phases, in the only order in which they follow each other.
const (
	PhaseStarting Phase = iota // the database has not been found in order yet
	PhaseReady
	PhaseDraining // final
)

var phaseNames = [...]string{"starting", "ready", "draining"}

func (p Phase) String() string { return phaseNames[p] }

// Readiness tells whether the replica may have traffic. It starts in PhaseStarting and only moves forward, so that no outage of a
// dependency can take a replica out of its Service. It is safe for concurrent use.
type Readiness struct {
	mu      sync.Mutex
	phase   Phase
	waiting string
}

// NewReadiness is a replica that starts.
func NewReadiness() *Readiness { return &Readiness{waiting: "its database"} }

// Waiting says what the start waits for. It does nothing once the replica is ready.
func (r *Readiness) Waiting(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == PhaseStarting {
		r.waiting = reason
	}
}

// Ready opens the replica, unless it drains already.
func (r *Readiness) Ready() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == PhaseStarting {
		r.phase, r.waiting = PhaseReady, ""
	}
}

// Drain takes the replica out of its Service for good.
func (r *Readiness) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.waiting = PhaseDraining, ""
}

// State is the phase and, while starting, what is waited for.
func (r *Readiness) State() (Phase, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase, r.waiting
}

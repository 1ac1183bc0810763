package stock

import "fmt"

// State is where a reservation stands.
type State uint8

// The states. The names in the database are those of String.
const (
	StateNone         State = iota // no row
	StateHeld                      // units taken, not paid
	StateConfirmed                 // paid
	StateReleased                  // the units went back
	StateVoid                      // tombstone: this try may never settle
	StateSurplus                   // forwarded ahead, nothing left to deduct (eventual SKUs)
	StateCompensating              // an oversold order is being made void
)

var stateNames = [...]string{"none", "held", "confirmed", "released", "void", "surplus", "compensating"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState reads what State.String wrote.
func ParseState(s string) (State, error) {
	for i, n := range stateNames {
		if n == s {
			return State(i), nil
		}
	}
	return StateNone, fmt.Errorf("unknown reservation state %q", s)
}

// Deducted reports whether units of the reservation are taken from the stock.
func (s State) Deducted() bool {
	return s == StateHeld || s == StateConfirmed || s == StateCompensating
}

// transitions lists, per state, the states that may follow it. Another try may reopen what is void or released without
// an answer; a late confirm may take again what was released. What was forwarded ahead may find
// nothing left, whatever became of the tries before.
var transitions = map[State][]State{
	StateNone:         {StateHeld, StateVoid, StateReleased, StateSurplus},
	StateHeld:         {StateConfirmed, StateReleased, StateCompensating},
	StateConfirmed:    {StateReleased, StateCompensating},
	StateReleased:     {StateHeld, StateConfirmed, StateSurplus},
	StateVoid:         {StateHeld, StateSurplus},
	StateSurplus:      {StateHeld, StateReleased},
	StateCompensating: {StateReleased},
}

// CanBecome reports whether a reservation in state s may go to state to.
func (s State) CanBecome(to State) bool {
	for _, t := range transitions[s] {
		if t == to {
			return true
		}
	}
	return false
}

// Outcome is what is known of the order at the backend.
type Outcome uint8

// The outcomes. Unknown is neither success nor failure.
const (
	OutcomeUnknown Outcome = iota
	OutcomeAccepted
	OutcomeRejected
)

var outcomeNames = [...]string{"unknown", "accepted", "rejected"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// ParseOutcome reads what Outcome.String wrote.
func ParseOutcome(s string) (Outcome, error) {
	for i, n := range outcomeNames {
		if n == s {
			return Outcome(i), nil
		}
	}
	return OutcomeUnknown, fmt.Errorf("unknown outcome %q", s)
}

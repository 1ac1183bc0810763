package stock

import "testing"

// Only what ended without an order may be ordered again under the same id.
func TestWhatAnotherTryMayReopen(t *testing.T) {
	f := func(why string, row Row, want bool) {
		t.Helper()
		if row.Reopens() != want {
			t.Errorf("%s: reopens %v, want %v", why, !want, want)
		}
	}
	f("a tombstone", Row{State: StateVoid}, true)
	f("never sent", Row{State: StateReleased, Reason: ReasonNeverSent}, true)
	f("refused", Row{State: StateReleased, Outcome: OutcomeRejected, Reason: "refused"}, true)
	f("refused, and the answer is kept", Row{State: StateReleased, Outcome: OutcomeRejected, Answer: &Answer{Status: 422}}, false)
	f("cancelled after it was accepted", Row{State: StateReleased, Outcome: OutcomeAccepted, Reason: "cancelled"}, false)
	f("cancelled, and nobody knew that it was accepted", Row{State: StateReleased, Outcome: OutcomeRejected, Reason: ReasonCancelled}, false)
	f("expired", Row{State: StateReleased, Outcome: OutcomeAccepted, Reason: ReasonExpired}, false)
	f("refunded", Row{State: StateReleased, Outcome: OutcomeRejected, Paid: true}, false)
	f("released by the API while nobody knew", Row{State: StateReleased, Reason: "cancelled"}, false)
	f("held, never sent, but its stock row is broken", Row{State: StateHeld, Reason: ReasonNeverSent}, false)
	f("confirmed", Row{State: StateConfirmed, Outcome: OutcomeAccepted}, false)
	f("being made void", Row{State: StateCompensating, Outcome: OutcomeRejected}, false)
}

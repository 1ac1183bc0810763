package conformance

import "slices"

// outcome is section 9: forwarding, outcomes, expiry, replay.
func outcome() []Rule {
	return slices.Concat(forwarding(), takingOver(), expiry(), answers())
}

func forwarding() []Rule {
	return []Rule{
		{
			Name: "nothing-is-written-after-f", Section: 9,
			Sentence: "A sender writes to the backend only within F (2 s) of the moment its transaction's first statement … was first sent",
			Tests:    in("gateway", "TestTooLateIsNeverSent", "TestWritingStopsAtSendBefore"),
			Mutation: Mutation{"gateway/upstream.go", "if !m.before.IsZero() && m.before.Before(writeBy) {", "if m.before.IsZero() {"},
		},
		{
			Name: "f-begins-at-the-first-statement", Section: 9,
			Sentence: "only within F (2 s) of the moment its transaction's first statement … was first sent … repeats do not renew it",
			Tests:    in("ledger", "TestFirstSentIsStampedOnce"),
			Mutation: Mutation{"ledger/deducter_work.go", "\t\tif w.op.FirstSent.IsZero() {\n\t\t\tw.op.FirstSent = now\n\t\t}\n", "\t\tw.op.FirstSent = now\n"},
		},
		{
			Name: "f-of-an-ahead-order-begins-at-its-reserve", Section: 9,
			Sentence: "only within F (2 s) of the moment its transaction's first statement (ahead: its reserve, also if it then goes through) was first sent",
			Tests:    in("gateway/admission", "TestALostReserveIsAskedAgain"),
			Mutation: Mutation{"gateway/admission/ahead.go", "SendBefore: r.on.asked.Add(a.cfg.ForwardWithin)}}", "SendBefore: time.Now().Add(a.cfg.ForwardWithin)}}"},
		},
		{
			Name: "f-begins-at-the-reserve-also-if-it-then-goes-through", Section: 9,
			Sentence: "only within F (2 s) of the moment its transaction's first statement (ahead: its reserve, also if it then goes through) was first sent", Part: "also if it then goes through",
			Tests:    in("gateway/admission", "TestALostReserveIsDecidedByTheDatabase"),
			Mutation: Mutation{"gateway/admission/settle.go", "\tif !r.on.asked.IsZero() && r.on.asked.Before(op.FirstSent) {\n\t\treturn r.on.asked\n\t}\n", ""},
		},
		{
			Name: "the-sender-keeps-to-f", Section: 9,
			Sentence: "A sender writes to the backend only within F (2 s) of the moment … was first sent, by its own monotonic clock",
			Tests:    in("gateway/admission", "TestTheTimeToSendBeginsWithTheFirstStatement"),
			Mutation: Mutation{"gateway/admission/settle.go", "ForwardBy: res.ForwardBy, SendBefore: r.firstSent(op).Add(a.cfg.ForwardWithin)}}",
				"ForwardBy: res.ForwardBy, SendBefore: time.Now().Add(a.cfg.ForwardWithin)}}"},
		},
		{
			Name: "forward-by-is-never-before-the-senders-limit", Section: 9,
			Sentence: "`forward_by` in the row is the database's clock in that transaction + F, never earlier than the sender's own limit",
			Tests:    in("ledger/storetest", "TestSQLite/SettleTakesAndTells"),
			Mutation: Mutation{"ledger/decide.go", "row.ForwardBy = h.moment(h.forwardWithin)", "row.ForwardBy = h.moment(h.forwardWithin / 2)"},
		},
		{
			Name: "only-a-refusing-backend-closes-the-gap", Section: 9,
			Sentence: "only a backend that refuses later requests closes the gap of a pause between check and write, and the docs say so",
			Tests:    in("internal/orderservice", "TestC060_AnOrderAfterForwardByIsRejected"),
			Mutation: Mutation{"internal/orderservice/service.go", "!by.IsZero() && late > 0 {", "!by.IsZero() && late > time.Hour {"},
		},
		{
			Name: "never-sent-is-released", Section: 9,
			Sentence: "Surely never sent: release",
			Tests:    in("gateway", "TestC046_RefusedConnection"),
			Mutation: Mutation{"gateway/guarded.go", "e.book(admission.Outcome{Kind: admission.NeverSent, Reason: \"never_sent\"})",
				"e.book(admission.Outcome{Kind: admission.Unknown, Reason: \"never_sent\"})"},
		},
		{
			Name: "a-post-is-never-sent-twice", Section: 9,
			Sentence: "The gateway never sends a POST twice",
			Tests:    in("gateway", "TestC075_ClosedAfterReading"),
			Mutation: Mutation{"gateway/upstream.go", "\t\tif done.keep {\n", "\t\tif done.sent && done.err != nil && !isTimeout(done.err) {\n\t\t\tu.client.CloseConn(conn)\n" +
				"\t\t\tresp.Reset()\n\t\t\tcontinue\n\t\t}\n\t\tif done.keep {\n"},
		},
	}
}

func takingOver() []Rule {
	return []Rule{
		{
			Name: "nobody-takes-over-before-the-delay", Section: 9,
			Sentence: "Nobody else releases or takes over before `forward_by` + `order_delay`",
			Tests:    in("ledger/storetest", "TestSQLite/AnUnknownIsTakenOver"),
			Mutation: Mutation{"ledger/decide_hold.go", "row.lessened(), h.now.Before(row.ForwardBy.Add(op.Delay)):", "row.lessened():"},
		},
		{
			Name: "nobody-releases-before-the-delay", Section: 9,
			Sentence: "Nobody else releases or takes over before `forward_by` + `order_delay`", Part: "what a live gateway works on",
			Tests:    in("gateway/resolver", "TestARowThatALiveGatewayWorksOnIsLeftAlone"),
			Mutation: Mutation{"gateway/resolver/job.go", "return row.InFlight() && !p.final(row) }", "return false }"},
		},
		{
			Name: "404-is-final-only-after-the-delay-for-retries", Section: 9,
			Sentence: "404 is final only after forward_by + order_delay", Part: "a retry asks",
			Tests:    in("gateway/admission", "TestAnAnswerToAnEarlyQuestionIsNotFinal"),
			Mutation: Mutation{"gateway/admission/resolve.go", "return heard{none: over(row, delay)}", "return heard{none: true}"},
		},
		{
			Name: "404-is-final-only-after-the-delay-for-the-resolver", Section: 9,
			Sentence: "404 is final only after forward_by + order_delay", Part: "the resolver asks",
			Tests:    in("gateway/resolver", "TestNoOrderIsFinalOnlyOnceNoneCanComeAnyMore", "TestC060_AnOrderThatIsMadeLateKeepsItsUnits"),
			Mutation: Mutation{"gateway/resolver/end.go", "\tif !final {\n\t\treturn ending{}\n\t}\n", ""},
		},
	}
}

func expiry() []Rule {
	return []Rule{
		{
			Name: "confirm-api-asks-first", Section: 9,
			Sentence: "`confirm: api` asks `resolve` first: paid → confirmed, cancelled or unpaid → released, no answer → kept and asked again",
			Tests:    in("gateway/resolver", "TestC054_AHoldIsKeptWhileThePaymentCannotBeAskedAbout"),
			Mutation: Mutation{"gateway/resolver/job.go", "\tstate, ok := got.state()\n\tif !ok {\n",
				"\tstate, ok := got.state()\n\tif !ok && !row.Now.Before(row.ExpiresAt) {\n\t\treturn p.do(ctx, row, ending{expire(row, row.Outcome, stock.ReasonExpired), endedExpired})\n\t}\n\tif !ok {\n"},
		},
		{
			Name: "the-expirer-leaves-what-must-be-asked-about-first", Section: 9,
			Sentence: "`confirm: api` asks `resolve` first", Part: "no clock ends a route that is asked",
			Tests:    in("internal/e2e", "TestTheEndOfAHoldAsksFirst"),
			Mutation: Mutation{"wire_config.go", "r.Admit != nil && c.Upstreams[r.Upstream].Resolve == \"\" {", "r.Admit != nil {"},
		},
		{
			Name: "time-never-ends-an-unknown", Section: 9,
			Sentence: "Without `resolve`, time never ends an unknown: it waits for confirm, release, or reconciliation",
			Tests:    in("ledger/storetest", "TestSQLite/ExpiryIsByTheDatabasesClock"),
			Mutation: Mutation{"ledger/decide_end.go", "return row.Outcome == stock.OutcomeAccepted && row.Hold > 0 &&", "return row.Hold > 0 &&"},
		},
	}
}

func answers() []Rule {
	return []Rule{
		{
			Name: "booked-before-the-client-is-answered", Section: 9,
			Sentence: "Outcome and answer are committed (group commit, first class) before the client is answered",
			Tests:    in("gateway/admission", "TestBookRepeatsUntilTheDatabaseAnswers"),
			Mutation: Mutation{"gateway/admission/book.go", "\tselect {\n\tcase <-done:\n\tcase <-timer.C:\n\tcase <-ctx.Done():\n\t}\n}\n\n// BookBehind",
				"\tselect {\n\tcase <-done:\n\tcase <-timer.C:\n\tcase <-ctx.Done():\n\tdefault:\n\t}\n}\n\n// BookBehind"},
		},
		{
			Name: "bookings-are-first-class", Section: 9,
			Sentence: "Outcome and answer are committed (group commit, first class) before the client is answered", Part: "first class",
			Tests: in("gateway/admission", "TestBookingsOfEachKind"),
			Mutation: Mutation{"gateway/admission/book.go", "op := &stock.Op{Kind: stock.OpBook, Class: stock.ClassForwarded, ID: p.Reservation.ID, Try: p.Reservation.Try,",
				"op := &stock.Op{Kind: stock.OpBook, Class: stock.ClassPrededuct, ID: p.Reservation.ID, Try: p.Reservation.Try,"},
		},
		{
			Name: "behind-answers-first", Section: 9,
			Sentence: "`behind` answers first, and a crash in between leaves an unknown to be resolved",
			Tests:    in("gateway", "TestBehind"),
			Mutation: Mutation{"gateway/guarded.go", "\tif e.setup.cfg.AnswerBehind && !e.checking {", "\tif false {"},
		},
		{
			Name: "cookies-are-never-kept", Section: 9,
			Sentence: "backend answers (not 401, 403, 407, 429) are kept with status, chosen headers (never Set-Cookie)",
			Tests:    in("gateway", "TestSetCookieIsNeverKept"),
			Mutation: Mutation{"gateway/outcome.go", " || named(name, \"Set-Cookie\") {", " {"},
		},
	}
}

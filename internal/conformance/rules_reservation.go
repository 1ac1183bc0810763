package conformance

import "slices"

// reservation is section 5: ids, tries, transitions.
func reservation() []Rule {
	return slices.Concat(ids(), claims(), tries(), unitsBack())
}

func ids() []Rule {
	return []Rule{
		{
			Name: "id-of-length-prefixed-parts", Section: 5,
			Sentence: "first 128 bits of SHA-256 over length-prefixed (deployment, route, activity, user, request id)",
			Tests:    in("stock", "TestDeriveIDKeepsPartsApart"),
			Mutation: Mutation{"stock/id.go", "\t\th.Write(length[:])\n", ""},
		},
		{
			Name: "deployment-is-drawn-once", Section: 5,
			Sentence: "Deployment: a random id drawn by the first migration, kept in `meta`",
			Tests:    in("ledger/storetest", "TestSQLite/ADeploymentKeepsItsPartitions", "TestPostgres/ADeploymentKeepsItsPartitions"),
			Mutation: Mutation{"ledger/prepare.go", "ON CONFLICT DO NOTHING`),", "ON CONFLICT (one) DO UPDATE SET deployment = excluded.deployment`),"},
		},
	}
}

// claims are what an id has before it has a row.
func claims() []Rule {
	return []Rule{
		{
			Name: "eventual-id-is-claimed-first", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed in partition `CRC-32 of the id mod P`, so that the same key on two SKUs is seen before anything is forwarded",
			Tests:    in("gateway/admission", "TestAWinAheadPassesAndIsSettledBehind", "TestAnIDThatIsTaken"),
			Mutation: Mutation{"gateway/admission/ahead.go", "\t\tif err := a.claimAhead(ctx, r); err != nil {\n\t\t\treturn stock.CacheReply{}, err\n\t\t}\n", ""},
		},
		{
			Name: "a-free-claim-proves-nothing-before-ids-are-loaded", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed in partition `CRC-32 of the id mod P`, so that the same key on two SKUs is seen before anything is forwarded", Part: "while Redis does not know all ids",
			Tests:    in("gateway/admission", "TestAFreeClaimProvesNothingWhileIDsAreMissing"),
			Mutation: Mutation{"gateway/admission/claim.go", "if a.knowsAll(reply.IDsLoaded) {", "if err == nil {"},
		},
		{
			Name: "strong-ids-are-claimed-where-anything-is-eventual", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed in partition `CRC-32 of the id mod P`, so that the same key on two SKUs is seen before anything is forwarded", Part: "an order that waits for its commit takes its id before it, or orders ahead would not see it",
			Tests:    in("gateway/admission", "TestStrongOrdersClaimWhereAnythingIsEventual"),
			Mutation: Mutation{"gateway/admission/claim.go", "\tcase !r.Keyed, a.cache == nil, !a.sale.AnyEventual(), r.on.unclaimed:\n", "\tcase !r.Keyed, a.cache == nil, !r.on.some, r.on.unclaimed:\n"},
		},
		{
			Name: "an-id-that-cannot-be-claimed-needs-its-partition-drained", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed … unreachable: section 8's condition, else 503",
			Tests:    in("ledger/storetest", "TestClaimsSQLite/WhatCouldNotBeClaimed"),
			Mutation: Mutation{"ledger/decide.go", "p == nil || !p.ahead || p.state == stock.PartitionDrained", "p == nil || p.ahead"},
		},
		{
			Name: "the-database-is-told-that-an-id-is-unclaimed", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed … unreachable: section 8's condition, else 503", Part: "who settles it says so",
			Tests:    in("gateway/admission", "TestAnIDThatCannotBeClaimed"),
			Mutation: Mutation{"gateway/admission/settle.go", "Unclaimed: r.on.unclaimed && r.on.some}", "Unclaimed: false}"},
		},
		{
			Name: "every-partition-drains-once-anything-sells-ahead", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed … unreachable: section 8's condition, else 503", Part: "a claim's partition may have no SKU that sells ahead, and drains all the same",
			Tests:    in("ledger/storetest", "TestClaimsSQLite/EveryPartitionDrains"),
			Mutation: Mutation{"ledger/decide_grant.go", "for n := range h.partitionCount {\n\t\t\th.lacking.own(n)\n\t\t}", "h.lacking.own(p.p)"},
		},
		{
			Name: "a-second-order-of-an-id-is-found", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed … so that the same key on two SKUs is seen before anything is forwarded", Part: "what a claim could not exclude is found when it is settled",
			Tests:    in("ledger/storetest", "TestClaimsSQLite/TheSecondOrderOfAnID"),
			Mutation: Mutation{"ledger/decide_ahead.go", "return h.settleTwin(op)", "return verdict(stock.VerdictKeyReused, row)"},
		},
		{
			Name: "a-twin-ends-with-its-try", Section: 5,
			Sentence: "For `eventual` SKUs the id is first claimed … so that the same key on two SKUs is seen before anything is forwarded", Part: "what became a twin and was never sent holds no units",
			Tests:    in("ledger", "TestATwinEndsWithItsTry"),
			Mutation: Mutation{"ledger/decide_ahead.go", "\t\th.endTwin(row, r, reason)\n", "\t\th.mark(row, r, reason)\n"},
		},
		{
			Name: "id-only-in-open-is-settled-first", Section: 5,
			Sentence: "An id known only in `open` is settled first", Part: "the notice",
			Tests:    in("gateway/control", "TestWhatIsKnownOnlyInOpenIsSettledFirst"),
			Mutation: Mutation{"gateway/control/open.go", "if settled, err := s.settleOpen(ctx, op.ID); !settled {", "if settled, err := s.settleOpen(ctx, op.ID); settled || err != nil {"},
		},
		{
			Name: "what-is-in-open-gets-a-row-first", Section: 5,
			Sentence: "An id known only in `open` is settled first", Part: "the entry",
			Tests:    in("gateway/admission", "TestSettleOpen"),
			Mutation: Mutation{"gateway/admission/open.go", "if !entries[i].Ahead {", "if entries[i].Ahead {"},
		},
	}
}

func tries() []Rule {
	return []Rule{
		{
			Name: "never-sent-ends-its-own-try-only", Section: 5,
			Sentence: "void or a release of what was never sent ends that try only",
			Tests:    in("ledger", "TestAnotherTrysRowIsLeftAlone"),
			Mutation: Mutation{"ledger/decide_end.go",
				"\tcase row.Try != op.Try:\n\t\treturn h.endOther(row, op)\n\t}\n\treturn h.neverSent(row, op)",
				"\t}\n\treturn h.neverSent(row, op)"},
		},
		{
			Name: "void-ends-its-own-try-only", Section: 5,
			Sentence: "void or a release of what was never sent ends that try only, and another try may reopen the id",
			Tests:    in("stock", "TestWhatAnotherTryMayReopen"),
			Mutation: Mutation{"stock/reservation.go", "\tcase r.State == StateVoid:\n\t\treturn true\n", "\tcase r.State == StateVoid:\n\t\treturn false\n"},
		},
		{
			Name: "kept-answer-is-not-reopened", Section: 5,
			Sentence: "void or a release of what was never sent ends that try only, and another try may reopen the id, if no answer is kept, by compare-and-set on (state, try)", Part: "if no answer is kept",
			Tests:    in("stock", "TestWhatAnotherTryMayReopen"),
			Mutation: Mutation{"stock/reservation.go", "\tcase r.Answer != nil, r.Paid,", "\tcase r.Paid,"},
		},
		{
			Name: "released-is-held-again-only-by-retake", Section: 5,
			Sentence: "held again only by `retake` or another try",
			Tests:    in("ledger/storetest", "TestSQLite/ALateConfirmTakesWhatIsStillOrdered"),
			Mutation: Mutation{"ledger/decide_outcome.go", "if op.Retake && !row.Paid {", "if !row.Paid {"},
		},
		{
			Name: "tombstone-never-settles", Section: 5,
			Sentence: "this try may never settle (tombstone)",
			Tests:    in("ledger/storetest", "TestSQLite/TriesAndTombstones", "TestSQLite/OwnersReleaseWithoutARow"),
			Mutation: Mutation{"ledger/decide.go", "\tcase row.Try == r.Try:\n\t\treturn verdict(stock.VerdictVoided, row)\n", ""},
		},
		{
			Name: "surplus-is-of-ahead-only", Section: 5,
			Sentence: "(none) → surplus → held | released (cancelled)       ahead only: forwarded, nothing left to deduct",
			Tests:    in("ledger/storetest", "TestAheadSQLite/AWinIsSettledFromItsGrant"),
			Mutation: Mutation{"ledger/decide.go", "if op.Ahead {\n\t\treturn h.settleAhead(op)", "if op.Ahead || op.Seen {\n\t\treturn h.settleAhead(op)"},
		},
	}
}

func unitsBack() []Rule {
	return []Rule{
		{
			Name: "a-line-never-gives-back-more-than-it-has", Section: 5,
			Sentence: "what is released of a line never exceeds it",
			Tests:    in("ledger/storetest", "TestSQLite/LinesGoBackOneByOne"),
			Mutation: Mutation{"ledger/decide_part.go", "i < 0 || l.Qty > row.Lines[i].Qty-row.Released[i]", "i < 0 || l.Qty > row.Lines[i].Qty"},
		},
		{
			Name: "only-what-is-deducted-goes-back", Section: 5,
			Sentence: "only rows with a deduction not yet given back can give back",
			Tests:    in("ledger", "TestOnlyTheRestOfALineComesBack"),
			Mutation: Mutation{"ledger/decide.go", "\tunits := row.Lines[i].Qty - row.Released[i]\n\t*k.sum(from)", "\tunits := row.Lines[i].Qty\n\t*k.sum(from)"},
		},
		{
			Name: "only-a-deducted-row-is-released", Section: 5,
			Sentence: "only rows with a deduction not yet given back can give back", Part: "a row that was released gives nothing",
			Tests: in("ledger", "TestTransitionsAreThoseOfTheDomain", "TestDecideAgainstADumbModel"),
			Mutation: Mutation{"ledger/decide_end.go",
				"\tcase row.State == stock.StateReleased, row.State == stock.StateVoid:\n\t\treturn verdict(stock.VerdictDone, row)\n\tcase row.State == stock.StateHeld && row.Outcome",
				"\tcase row.Outcome"},
		},
	}
}

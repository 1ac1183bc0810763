package conformance

import "slices"

// breaker is section 8: breaker, fallback, draining, the way back, the sweeper.
func breaker() []Rule {
	return slices.Concat(fallingBack(), draining(), comingBack())
}

func fallingBack() []Rule {
	return []Rule{
		{
			Name: "redis-never-changes-readiness", Section: 8,
			Sentence: "Redis never changes readiness",
			Tests:    in("gateway/control", "TestRedisNeverMovesReadiness"),
			Mutation: Mutation{"gateway/control/health.go", "\tif phase != PhaseReady {\n", "\tif phase != PhaseReady || s.deps.Status().Redis.Breaker == \"open\" {\n"},
		},
		{
			Name: "eventual-from-the-database-only-if-drained-or-unique", Section: 8,
			Sentence: "So database-only admission of an eventual SKU needs either an upstream with `unique: true` and no purchase limit, or the partition `drained`, read FOR SHARE in the same transaction; otherwise 503", Part: "drained",
			Tests:    in("ledger/storetest", "TestAheadSQLite/TheDatabaseAloneSellsWhatIsDrained"),
			Mutation: Mutation{"ledger/decide.go", "case k.partition.state != stock.PartitionDrained:", "case k.partition.state == stock.PartitionOpen:"},
		},
		{
			Name: "drained-is-read-for-share-before-the-database-sells", Section: 8,
			Sentence: "So database-only admission of an eventual SKU needs either an upstream with `unique: true` and no purchase limit, or the partition `drained`, read FOR SHARE in the same transaction; otherwise 503", Part: "FOR SHARE",
			Tests:    in("ledger/storetest", "TestAheadPostgres/ADrainedPartitionStaysSoMeanwhile"),
			Mutation: Mutation{"ledger/decide.go", "\t\th.lacking.share(k.partition.p)\n", ""},
		},
		{
			Name: "unique-sells-only-without-a-purchase-limit", Section: 8,
			Sentence: "So database-only admission of an eventual SKU needs either an upstream with `unique: true` and no purchase limit, or the partition `drained`, read FOR SHARE in the same transaction; otherwise 503", Part: "no purchase limit",
			Tests:    in("gateway/admission", "TestUniqueCountsOnlyWithoutALimit"),
			Mutation: Mutation{"gateway/admission/settle.go", " && a.backend != nil && !r.limited() {", " && a.backend != nil {"},
		},
	}
}

func draining() []Rule {
	return []Rule{
		{
			Name: "drained-is-said-only-once-nothing-is-left", Section: 8,
			Sentence: "A replica says `drained(p, epoch)` only after it has learned that epoch, with no reserve in flight and no win, cart or settle left under the old one", Part: "who says it",
			Tests:    in("fallback", "TestDrainedIsSaidOnlyWhenTheEpochIsLearnedAndNothingIsLeft"),
			Mutation: Mutation{"fallback/wayback_drain.go", "case w.cfg.Idle(p, s.DrainEpoch):", "case w.cfg.Idle(p, 0):"},
		},
		{
			Name: "drained-only-with-nothing-under-the-old-epoch", Section: 8,
			Sentence: "A replica says `drained(p, epoch)` only after it has learned that epoch, with no reserve in flight and no win, cart or settle left under the old one", Part: "what is under the old one",
			Tests:    in("gateway/admission", "TestAheadsCountByEpoch"),
			Mutation: Mutation{"gateway/admission/aheads.go", "f.byEpoch[0].epoch >= epoch", "f.byEpoch[len(f.byEpoch)-1].epoch >= epoch"},
		},
		{
			Name: "drained-only-with-no-settle-left", Section: 8,
			Sentence: "A replica says `drained(p, epoch)` only after it has learned that epoch, with no reserve in flight and no win, cart or settle left under the old one", Part: "no settle left",
			Tests:    in("gateway/admission", "TestAWinAheadPassesAndIsSettledBehind"),
			Mutation: Mutation{"gateway/admission/behind.go", "\tstays := r.handOver()\n", "\tb.a.countOut(r)\n\tstays := r.handOver()\n"},
		},
		{
			Name: "a-heartbeat-before-epochs", Section: 8,
			Sentence: "A replica writes its `gateway` row before it reads epochs",
			Tests:    in("fallback", "TestEpochsAreReadOnlyAfterTheFirstHeartbeat"),
			Mutation: Mutation{"fallback/wayback.go", "\tif w.cfg.Now().IsZero() {\n\t\treturn nil\n\t}\n", ""},
		},
	}
}

func comingBack() []Rule {
	return []Rule{
		{
			Name: "sold-out-to-an-id-only-after-a-look-up", Section: 8,
			Sentence: "until ids are loaded, or while a live replica reports `redis_ok` false, SOLD_OUT to a request with an id is said only after a batched lookup by id",
			Tests:    in("gateway/admission", "TestSoldOutToAnIDNeedsProofThatRedisKnowsTheIDs"),
			Mutation: Mutation{"gateway/admission/prededuct.go", "if unproven || r.Keyed && !a.knowsIDs(reply) {", "if unproven {"},
		},
		{
			Name: "an-outage-is-told-before-redis-is-called-ok", Section: 8,
			Sentence: "until ids are loaded, or while a live replica reports `redis_ok` false, SOLD_OUT to a request with an id is said only after a batched lookup by id", Part: "what redis_ok says",
			Tests:    in("fallback", "TestC027_AnOutageIsToldBeforeRedisIsCalledOK"),
			Mutation: Mutation{"fallback/wayback.go", "if w.outage[p].Load() != nil || !w.cfg.Usable(p) {", "if !w.cfg.Usable(p) {"},
		},
		{
			Name: "never-all-replicas-at-once", Section: 8,
			Sentence: "Ramp; never all replicas at once", Part: "each probes at a moment of its own",
			Tests:    in("fallback", "TestC026_ReplicasProbeAtMomentsOfTheirOwn"),
			Mutation: Mutation{"fallback/breaker.go", "open*3/4+rand.N(open/2+1)", "open*3/4+rand.N(time.Duration(1))"},
		},
		{
			Name: "one-holder-comes-back", Section: 8,
			Sentence: "**Coming back** (and after lost writes), by one holder of the partition's lease … never all replicas at once",
			Tests:    in("fallback", "TestALateHolderLooksAgainUnderTheLease"),
			Mutation: Mutation{"fallback/wayback_open.go", "\t\tif !look.lost {\n\t\t\tcontinue\n\t\t}\n\t\tif look.epoch", "\t\tif look.epoch"},
		},
		{
			Name: "a-redis-ahead-raises-the-database-first", Section: 8,
			Sentence: "If Redis's (epoch, ver) is above the database's (a restored or failed-over database): raise the database's above it, sell nothing ahead, reconcile first",
			Tests:    in("fallback", "TestARedisAheadRaisesTheDatabaseAboveIt"),
			Mutation: Mutation{"fallback/wayback_open.go", "\t\tatLeast[p] = look.epoch\n", ""},
		},
		{
			Name: "a-restored-database-sells-nothing-ahead-first", Section: 8,
			Sentence: "If Redis's (epoch, ver) is above the database's (a restored or failed-over database): raise the database's above it, sell nothing ahead, reconcile first", Part: "the ver, and eventual SKUs",
			Tests:    in("fallback", "TestADatabaseThatWentBackIsRaisedAboveRedisBeforeAnythingIsSoldAhead"),
			Mutation: Mutation{"fallback/wayback_setback.go", "\t\t\tw.setBack[s.P] = s.Epoch\n", ""},
		},
		{
			Name: "a-restored-database-is-reconciled-first", Section: 8,
			Sentence: "If Redis's (epoch, ver) is above the database's (a restored or failed-over database): raise the database's above it, sell nothing ahead, reconcile first", Part: "nothing but somebody's word opens the partition",
			Tests:    in("ledger/storetest", "TestClaimsSQLite/ADatabaseThatWasSetBack"),
			Mutation: Mutation{"ledger/drained.go", "return s.noteDoubt(c, stock.DoubtDatabase, ps)", "return nil"},
		},
		{
			Name: "a-sweep-of-another-trys-row-closes-lost-only", Section: 8,
			Sentence: "a row of another try → close lost only",
			Tests:    in("fallback", "TestSweepEndsEntriesByTheRowOfThisTry"),
			Mutation: Mutation{"fallback/endings.go", "if row != nil && row.Try == r.Try && kept(row) {", "if row != nil && kept(row) {"},
		},
	}
}

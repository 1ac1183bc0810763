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
			Name: "eventual-from-the-database-only-if-drained-or-unique", Section: 8, Pending: true,
			Sentence: "So database-only admission of an eventual SKU needs either an upstream with `unique: true` and no purchase limit, or the partition `drained`, read FOR SHARE in the same transaction; otherwise 503",
		},
	}
}

func draining() []Rule {
	return []Rule{
		{
			Name: "drained-is-said-only-once-nothing-is-left", Section: 8, Pending: true,
			Sentence: "A replica says `drained(p, epoch)` only after it has learned that epoch, with no reserve in flight and no win, cart or settle left under the old one",
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
			Name: "a-restored-database-sells-nothing-ahead-first", Section: 8, Pending: true,
			Sentence: "sell nothing ahead, reconcile first", Part: "eventual SKUs",
		},
		{
			Name: "a-sweep-of-another-trys-row-closes-lost-only", Section: 8,
			Sentence: "a row of another try → close lost only",
			Tests:    in("fallback", "TestSweepEndsEntriesByTheRowOfThisTry"),
			Mutation: Mutation{"fallback/endings.go", "if row != nil && row.Try == r.Try && (", "if row != nil && ("},
		},
	}
}

package conformance

import "slices"

// database is section 7: schema, locks, service order, grants.
func database() []Rule {
	return slices.Concat(schema(), locksAndRows(), service(), grants())
}

func schema() []Rule {
	return []Rule{
		{
			Name: "unique-columns-are-never-null-postgres", Section: 7,
			Sentence: "Unique columns are never NULL ('' instead)", Part: "PostgreSQL",
			Tests: in("ledger/storetest", "TestPostgres/UniqueColumnsAreNeverNull"),
			Mutation: Mutation{"ledger/migrations/postgres/00001_begin.sql",
				"    op             text NOT NULL,\n", "    op             text,\n"},
		},
		{
			Name: "unique-columns-are-never-null-sqlite", Section: 7,
			Sentence: "Unique columns are never NULL ('' instead)", Part: "SQLite",
			Tests: in("ledger/storetest", "TestSQLite/UniqueColumnsAreNeverNull"),
			Mutation: Mutation{"ledger/migrations/sqlite/00001_begin.sql",
				"    op             TEXT NOT NULL,\n", "    op             TEXT,\n"},
		},
		{
			Name: "rules-of-the-first-replica-with-a-newer-config", Section: 7,
			Sentence: "stored with a version by the first replica that loads a newer config, used by all",
			Tests:    in("ledger/storetest", "TestSQLiteQueries/AdmissionIsAgreedOn"),
			Mutation: Mutation{"ledger/admission.go", "if err != nil || last > 0 {", "if err != nil {"},
		},
	}
}

func locksAndRows() []Rule {
	return []Rule{
		{
			Name: "one-lock-order-skus", Section: 7,
			Sentence: "One lock order for every transaction: partition rows (only where section 8 says so), stock rows by SKU bytes",
			Tests:    in("ledger/storetest", "TestPostgresFaults/C034_RowsAreLockedInOrder"),
			Mutation: Mutation{"ledger/postgres_lock.go", "`ORDER BY s.%s COLLATE \"C\" FOR NO KEY UPDATE %s`, names.sku, names.available, names.table, names.sku, skus, names.sku, skip)",
				"`ORDER BY random() FOR NO KEY UPDATE %s`, names.sku, names.available, names.table, names.sku, skus, skip)"},
		},
		{
			Name: "partition-rows-are-locked-first", Section: 7,
			Sentence: "One lock order for every transaction: partition rows (only where section 8 says so), stock rows …", Part: "before the stock rows",
			Tests:    in("ledger/storetest", "TestAheadPostgres/PartitionsAreLockedFirst"),
			Mutation: Mutation{"ledger/postgres_lock.go", "\ts.lockPartitions(req)\n\tif len(req.skus)+len(req.lookups) == 0 {\n\t\treturn reply, nil // BEGIN goes with what read asks\n\t}\n\ts.lockStock(req, &reply)\n", "\tif len(req.skus)+len(req.lookups) == 0 {\n\t\ts.lockPartitions(req)\n\t\treturn reply, nil\n\t}\n\ts.lockStock(req, &reply)\n\ts.lockPartitions(req)\n"},
		},
		{
			Name: "partition-rows-are-locked-only-there", Section: 7,
			Sentence: "One lock order for every transaction: partition rows (only where section 8 says so), stock rows …", Part: "only there",
			Tests:    in("ledger/storetest", "TestAheadPostgres/PartitionsAreLockedOnlyToSellWhatIsDrained"),
			Mutation: Mutation{"ledger/session.go", "\treq.partitions = t.p.partitions()\n", "\treq.partitions = partitionsOf(t.p.skus(), t.s.cfg.Partitions)\n"},
		},
		{
			Name: "the-shop-is-never-the-victim", Section: 7,
			Sentence: "`SET LOCAL lock_timeout = 200ms`, below the server's deadlock time-out, so that the shop's transaction never is the victim",
			Tests:    in("ledger/storetest", "TestPostgresFaults/C034_TheShopIsNeverTheVictim"),
			Mutation: Mutation{"ledger/postgres.go", "set_config('lock_timeout', '%d', true)", "set_config('lock_timeout', '10%d', true)"},
		},
		{
			Name: "an-external-row-comes-first", Section: 7,
			Sentence: "If the locked row differs from `last_available`, an `external` ledger row with the difference comes first",
			Tests:    in("ledger/storetest", "TestSQLite/ExternalChangesAreWrittenDown"),
			Mutation: Mutation{"ledger/session.go", "\t\t\tt.h.noticeExternal(k)\n", ""},
		},
	}
}

func service() []Rule {
	return []Rule{
		{
			Name: "forwarded-first-then-prededuct-then-database-only", Section: 7,
			Sentence: "Settles of forwarded reservations first, never dropped, never limited; then pre-deducted; then database-only",
			Tests:    in("fallback", "TestServiceOrderIsForwardedPredeductDatabase"),
			Mutation: Mutation{"fallback/queue_take.go", "f.class(stock.ClassForwarded, math.MaxInt, func(lines int) int { return 0 })\n\troom := q.commit.room(f.now)\n" +
				"\tprededuct := f.class(stock.ClassPrededuct, room, q.commit.cost)\n",
				"room := q.commit.room(f.now)\n\tprededuct := f.class(stock.ClassPrededuct, room, q.commit.cost)\n" +
					"\tf.class(stock.ClassForwarded, math.MaxInt, func(lines int) int { return 0 })\n"},
		},
		{
			Name: "forwarded-is-never-limited", Section: 7,
			Sentence: "Settles of forwarded reservations first, never dropped, never limited", Part: "not limited",
			Tests: in("fallback", "TestForwardedWorkIsNeverLimited"),
			Mutation: Mutation{"fallback/queue_take.go", "f.class(stock.ClassForwarded, math.MaxInt, func(lines int) int { return 0 })",
				"f.class(stock.ClassForwarded, min(math.MaxInt, q.commit.room(f.now)), q.commit.cost)"},
		},
		{
			Name: "forwarded-is-never-dropped", Section: 7,
			Sentence: "Settles of forwarded reservations first, never dropped, never limited", Part: "not dropped",
			Tests:    in("ledger", "TestWhatWasForwardedIsKeptUntilTheDatabaseIsBack"),
			Mutation: Mutation{"ledger/deducter_work.go", "return w.op.Class == stock.ClassForwarded || w.mayHave.Load()", "return w.mayHave.Load()"},
		},
		{
			Name: "commit-limits-all-but-the-first", Section: 7,
			Sentence: "`database.commit` limits all but the first, for the fleet (divided by live replicas)",
			Tests:    in("fallback", "TestC073_RatesAreSharedByLiveReplicas"),
			Mutation: Mutation{"fallback/limits.go", "perSecond / float64(max(replicas, 1))", "perSecond"},
		},
		{
			Name: "fallback-limits-database-only-work", Section: 7,
			Sentence: "`fallback` limits database-only work: rate of transactions and of lines",
			Tests:    in("fallback", "TestDatabaseOnlyWorkIsHeldToItsRate"),
			Mutation: Mutation{"fallback/queue_take.go", "\t\tq.fallback.charge(f.now, database)\n", "\t\t_ = database\n"},
		},
		{
			Name: "late-work-is-dropped-before-its-transaction", Section: 7,
			Sentence: "What is past its deadline before its transaction starts is dropped",
			Tests:    in("fallback", "TestLateWorkIsDroppedBeforeItStarts"),
			Mutation: Mutation{"fallback/queue_take.go", "\t\t\tif f.q.isLate(n, f.now) {\n", "\t\t\tif false {\n"},
		},
		{
			Name: "dropped-work-is-closed-in-redis", Section: 7,
			Sentence: "What is past its deadline before its transaction starts is dropped and closed in Redis",
			Tests:    in("gateway/admission", "TestDatabaseGoneMeansNothingIsForwarded"),
			Mutation: Mutation{"gateway/admission/settle.go", "\tcase errors.Is(err, stock.ErrNotExecuted):\n\t\ta.closeLost(r, at, nil)\n", "\tcase errors.Is(err, stock.ErrNotExecuted):\n"},
		},
		{
			Name: "an-owner-releases-what-was-never-sent", Section: 7,
			Sentence: "A win whose waiter is gone was surely never sent: its owner releases it",
			Tests:    in("gateway/admission", "TestAnUnknownSettleIsUndoneByItsOwner"),
			Mutation: Mutation{"gateway/admission/settle.go", "\ta.pending.undo(r)\n\treturn refuse(at.source, &Refusal{", "\treturn refuse(at.source, &Refusal{"},
		},
		{
			Name: "the-slot-is-taken-before-the-stock", Section: 7,
			Sentence: "The upstream connection slot is taken before the pre-deduct",
			Tests:    in("gateway", "TestNoFreeSlotIsRefusedBeforeTheStockIsAsked"),
			Mutation: Mutation{"gateway/guarded.go", "\tif !e.enter() || !e.takeSlot() {\n\t\treturn\n\t}\n\te.follow(e.s.admission.Admit(e.s.base, e.wanted()))\n",
				"\tif !e.enter() {\n\t\treturn\n\t}\n\tdecision := e.s.admission.Admit(e.s.base, e.wanted())\n\tif e.takeSlot() {\n\t\te.follow(decision)\n\t}\n"},
		},
	}
}

func grants() []Rule {
	return []Rule{
		{
			Name: "grants-are-of-eventual-skus-only", Section: 7,
			Sentence: "**Grants** (eventual only)",
			Tests:    in("gateway/admission", "TestGrants"),
			Mutation: Mutation{"gateway/admission/grants.go", "case reply.Code == stock.CacheWait && r.on.ahead:", "case reply.Code == stock.CacheWait:"},
		},
		{
			Name: "a-grant-names-the-ver-it-saw", Section: 7,
			Sentence: "**Grants** (eventual only). When free runs low, a replica moves about one second of sales … from `available` to `granted`, in a transaction that names the `ver` it saw, so that not all refill at once", Part: "the ver",
			Tests:    in("ledger/storetest", "TestAheadSQLite/GrantsMoveUnits"),
			Mutation: Mutation{"ledger/decide_grant.go", "case op.SeenVer > 0 && k.grantVer > op.SeenVer:", "case op.SeenVer > 0 && k.grantVer < 0:"},
		},
		{
			Name: "only-a-seen-win-takes-from-the-grant", Section: 7,
			Sentence: "A settle of a win that was **seen** (in a reply or in `open`) takes from `granted` (only `sku_state` is locked); of an unknown one from `available`",
			Tests:    []Test{{"ledger/storetest", "TestAheadSQLite/TheDatabaseAloneSellsWhatIsDrained"}, {"ledger", "TestWhatRedisSellsAheadIsNeverSurplus"}},
			Mutation: Mutation{"ledger/decide_pool.go", "case !op.Ahead && !op.Seen || !k.ahead:", "case !k.ahead:"},
		},
		{
			Name: "a-settle-from-the-grant-locks-only-sku-state", Section: 7,
			Sentence: "A settle of a win that was **seen** (in a reply or in `open`) takes from `granted` (only `sku_state` is locked); of an unknown one from `available`", Part: "only `sku_state`",
			Tests:    in("ledger/storetest", "TestAheadPostgres/AGrantNeedsNoStockRow"),
			Mutation: Mutation{"ledger/plan.go", "light: op.Kind == stock.OpSettle && op.FromGrant}", "light: false}"},
		},
		{
			Name: "redis-and-database-never-sell-the-same-unit", Section: 7,
			Sentence: "So Redis and the database never sell the same unit", Part: "what Redis may sell is what was granted",
			Tests:    in("ledger", "TestWhatRedisSellsAheadIsNeverSurplus"),
			Mutation: Mutation{"stock/reservation.go", "\t\treturn f.Granted - f.Doubtful\n", "\t\treturn f.Left() - f.Doubtful\n"},
		},
		{
			Name: "redis-never-sells-ahead-what-is-not-granted", Section: 7,
			Sentence: "So Redis and the database never sell the same unit", Part: "Redis sells ahead only of the grant",
			Tests:    in("luascripts", "TestAnOrderGoesAheadOnTheGrantAlone"),
			Mutation: Mutation{"luascripts/reserve.lua", "or ((qty > base[s] - (out[s] or taken[s]) or", "or ((qty > (granted[s] and total[s] or base[s]) - (out[s] or taken[s]) or"},
		},
		{
			Name: "a-grant-that-may-be-sold-never-goes-back", Section: 7,
			Sentence: "So Redis and the database never sell the same unit", Part: "a grant goes back only once its partition is drained under that epoch",
			Tests:    in("ledger/storetest", "TestAheadSQLite/GrantsGoBack"),
			Mutation: Mutation{"ledger/decide_grant.go", "case k.partition.state != stock.PartitionDrained || k.partition.epoch != op.Epoch:", "case k.partition.epoch < op.Epoch:"},
		},
	}
}

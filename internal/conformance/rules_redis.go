package conformance

import "slices"

// redis is section 6: registers, scripts, flags.
func redis() []Rule {
	return slices.Concat(scripts(), registers(), ahead6(), flags())
}

func scripts() []Rule {
	return []Rule{
		{
			Name: "scripts-never-build-keys", Section: 6,
			Sentence: "Key builders live in one file; scripts never build keys",
			Tests:    in("luascripts", "TestScriptsNeverBuildKeys"),
			Mutation: Mutation{"luascripts/close.lua", "redis.call('ZREM', KEYS[3], unpack(gone))", "redis.call('ZREM', KEYS[1] .. ':due', unpack(gone))"},
		},
		{
			Name: "reserve-validates-before-it-writes", Section: 6,
			Sentence: "They validate everything before the first write (Redis does not roll back)", Part: "reserve",
			Tests:    in("luascripts", "TestAFailingScriptHasWrittenNothing/reserve"),
			Mutation: Mutation{"luascripts/reserve.lua", "  redis.call('ZCARD', KEYS[3])\n", ""},
		},
		{
			Name: "close-validates-before-it-writes", Section: 6,
			Sentence: "They validate everything before the first write (Redis does not roll back)", Part: "close",
			Tests:    in("luascripts", "TestAFailingScriptHasWrittenNothing/close"),
			Mutation: Mutation{"luascripts/close.lua", "redis.call('ZCARD', KEYS[3])\n", ""},
		},
		{
			Name: "duplicates-before-stock", Section: 6,
			Sentence: "check duplicates before stock",
			Tests:    in("luascripts", "TestDuplicatesComeBeforeStock"),
			Mutation: Mutation{"luascripts/reserve.lua", "    if records[i] or mine[key] then\n",
				"    if (records[i] or mine[key]) and decide(at + 3, n) == WON then\n"},
		},
		{
			Name: "a-missing-key-is-never-zero", Section: 6,
			Sentence: "treat a missing key as *not loaded* (never as zero)",
			Tests:    in("luascripts", "TestC010_AMissingKeyIsNotLoaded"),
			Mutation: Mutation{"luascripts/reserve.lua", "    fixed[s] = NOT_LOADED\n", "    fixed[s] = SOLD_OUT\n"},
		},
		{
			Name: "a-missing-sum-is-never-zero", Section: 6,
			Sentence: "treat a missing key as *not loaded* (never as zero)", Part: "the sums of what is out",
			Tests:    in("luascripts", "TestC010_AMissingKeyIsNotLoaded"),
			Mutation: Mutation{"luascripts/reserve.lua", "local summed = outs[1] == ARGV[1]\n", "local summed = true\n"},
		},
	}
}

func registers() []Rule {
	return []Rule{
		{
			Name: "few-scripts-write-registers", Section: 6,
			Sentence: "`close([(id, try, outcome)], facts)`: the only other writer besides load and claim",
			Tests:    in("luascripts", "TestFewScriptsWriteRegisters"),
			Mutation: Mutation{"luascripts/registers.lua", "return ", "redis.call('PERSIST', KEYS[1])\nreturn "},
		},
		{
			Name: "an-entry-goes-only-with-its-try", Section: 6,
			Sentence: "An entry of `open` goes only if its try is the one named; then out falls by its quantity",
			Tests:    in("luascripts", "TestModel"),
			Mutation: Mutation{"luascripts/close.lua", "if open and not of_claim and string.sub(open, 1, 16) == try then", "if open and not of_claim then"},
		},
		{
			Name: "lost-deletes-only-its-own-record", Section: 6,
			Sentence: "`lost` deletes that try's record … `lost`: void, refused, never sent, rejected without a kept answer",
			Tests:    in("luascripts", "TestModel"),
			Mutation: Mutation{"luascripts/close.lua", "elseif record[key] and string.sub(record[key], 1, 16) == try then", "elseif record[key] then"},
		},
		{
			Name: "never-sent-is-closed-as-lost", Section: 6,
			Sentence: "`lost`: void, refused, never sent, rejected without a kept answer",
			Tests:    in("gateway/admission", "TestWhatCannotGoBackNowIsGivenBackLater"),
			Mutation: Mutation{"gateway/admission/settle.go", "return row.State == stock.StateHeld || row.State == stock.StateConfirmed || row.State == stock.StateSurplus || row.Answer != nil",
				"return row.State != stock.StateVoid"},
		},
		{
			Name: "only-a-load-creates-a-key", Section: 6,
			Sentence: "Only a load creates a SKU's key",
			Tests:    in("luascripts", "TestC010_AMissingKeyIsNotLoaded"),
			Mutation: Mutation{"luascripts/close.lua", "  elseif r[1] == ARGV[1] then\n    local ver = integer(r[2])\n",
				"  else\n    redis.call('HSET', KEYS[4 + f], 'epoch', ARGV[1])\n    local ver = integer(r[2] or '0')\n"},
		},
		{
			Name: "a-load-sums-out-from-open", Section: 6,
			Sentence: "Only a load creates a SKU's key, and sums `out` from `open` when it does",
			Tests:    in("luascripts", "TestANewEpochUnloadsAndKeepsOpen"),
			Mutation: Mutation{"luascripts/load.lua", "(sums[lines[l]] or 0) + lines[l + 1] end", "0 end"},
		},
		{
			Name: "unknown-after-the-first-byte", Section: 6,
			Sentence: "*Unknown*: anything after the first byte went out",
			Tests:    in("luascripts", "TestALostReplyIsUnknownAndAskedAgainWonOnce"),
			Mutation: Mutation{"luascripts/errors.go", "\tif wrote {\n\t\treturn &failure{class: stock.ErrUnknown, cause: err, node: true}\n\t}\n",
				"\tif wrote {\n\t\treturn &failure{class: stock.ErrNotExecuted, cause: err, node: true}\n\t}\n"},
		},
	}
}

func ahead6() []Rule {
	return []Rule{
		{
			Name: "no-ahead-entry-closed-before-its-row", Section: 6,
			Sentence: "No ahead entry is closed before its try has a committed row", Part: "the sweeper, and the way back",
			Tests:    in("fallback", "TestSweepClosesNoAheadEntryWithoutARowOfItsTry"),
			Mutation: Mutation{"fallback/endings.go", "case !entry.Ahead, own, row != nil && result.Verdict == stock.VerdictStale:", "case !entry.Ahead, own, row != nil:"},
		},
		{
			Name: "no-ahead-entry-closed-before-its-row-by-its-owner", Section: 6,
			Sentence: "No ahead entry is closed before its try has a committed row", Part: "an owner whose settle was not executed",
			Tests:    in("gateway/admission", "TestALostReserveIsClosedOnlyWithARow"),
			Mutation: Mutation{"gateway/admission/settle.go", "\tcase errors.Is(err, stock.ErrNotExecuted) && r.on.maybe:\n\t\ta.pending.undo(r) // an ahead entry goes only once its try has a row\n\t\treturn refuse(at.source, refuseErr(err))\n", ""},
		},
		{
			Name: "no-ahead-entry-closed-for-a-row-of-another-try", Section: 6,
			Sentence: "No ahead entry is closed before its try has a committed row", Part: "an owner whose settle finds another row",
			Tests:    in("gateway/admission", "TestVerdictsOfASettleBehind"),
			Mutation: Mutation{"gateway/admission/behind.go", "\tif v == stock.VerdictDone {\n\t\tif row", "\tif v == stock.VerdictDone || row != nil {\n\t\tif row"},
		},
		{
			Name: "an-unknown-ahead-reserve-is-asked-again", Section: 6,
			Sentence: "eventual asks again with the same id and try, then goes through only on section 8's condition for database-only admission (from `available`), else 503", Part: "it asks again",
			Tests:    in("gateway/admission", "TestALostReserveIsAskedAgain"),
			Mutation: Mutation{"gateway/admission/ahead.go", "\t\treply, err = a.reserveAgain(ctx, r)\n", ""},
		},
		{
			Name: "unknown-ahead-reserve-goes-through-only-under-section-8", Section: 6,
			Sentence: "eventual asks again with the same id and try, then goes through only on section 8's condition for database-only admission (from `available`), else 503", Part: "what it hears then proves nothing but a win",
			Tests:    in("gateway/admission", "TestALostReserveIsDecidedByTheDatabase"),
			Mutation: Mutation{"gateway/admission/ahead.go", "case reply.Code != stock.CacheWon, len(r.on.stays) == 0, r.on.stays[0].epoch != reply.Epoch:", "case len(r.on.stays) == 0:"},
		},
		{
			Name: "unknown-ahead-reserve-takes-from-available", Section: 6,
			Sentence: "eventual asks again with the same id and try, then goes through only on section 8's condition for database-only admission (from `available`), else 503", Part: "from `available`",
			Tests:    in("gateway/admission", "TestALostReserveIsDecidedByTheDatabase"),
			Mutation: Mutation{"gateway/admission/prededuct.go", "open: mayBeOpen || r.taken > 0})", "open: mayBeOpen || r.taken > 0, seen: mayBeOpen})"},
		},
	}
}

func flags() []Rule {
	return []Rule{
		{
			Name: "a-flag-refuses-only-what-is-not-there", Section: 6,
			Sentence: "refuses only qty > base + rest",
			Tests:    in("gateway/admission", "TestFlagsBelieveOnlyTheNewest"),
			Mutation: Mutation{"gateway/admission/flags.go", "return known && qty > got.left &&", "return known && qty >= got.left &&"},
		},
		{
			Name: "a-flag-refuses-only-without-an-id", Section: 6,
			Sentence: "and only requests without a request id (one with an id may be a winner's retry and always asks)",
			Tests:    in("gateway/admission", "TestSoldOutFlagSparesOnlyRequestsWithoutAnID"),
			Mutation: Mutation{"gateway/admission/admitter.go", "\tif w.RequestID == \"\" {\n", "\t{\n"},
		},
		{
			Name: "an-older-reply-sets-no-flag", Section: 6,
			Sentence: "refuses only qty > base + rest … a reply older than the newest ver does not set it", Part: "an older reply",
			Tests:    in("gateway/admission", "TestFlagsBelieveOnlyTheNewest"),
			Mutation: Mutation{"gateway/admission/flags.go", "if known && ver < got.ver && now.Sub(got.at) < flagForget {", "if known && now.Before(got.at) {"},
		},
		{
			Name: "a-queue-is-emptied-only-without-ids", Section: 6,
			Sentence: "The queue of a SKU is emptied with the final answer only on the same condition",
			Tests:    in("gateway/admission", "TestASoldOutFactIsNoAnswerToAnID"),
			Mutation: Mutation{"gateway/admission/line.go", "if soldOut && !r.Keyed {", "if soldOut {"},
		},
	}
}

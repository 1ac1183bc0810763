package stock

// CheckI5 holds: what the database counts for a user is what the user's counted reservations take; and it is within the limit, that of
// the snapshot, or else the highest one of the terms under which the units were taken. A limit of the snapshot counts every unit of
// the activity, also those that were never counted.
//
// Counts of open reservations (UserTake without a SKU) are looked at if the snapshot has them: a user's open reservations need not be
// of the snapshot's SKUs. Units of SKUs that the snapshot does not have are left out.
func CheckI5(s *Snapshot) []Violation {
	f := findings{invariant: 5}
	tallies, order := tallied(s)
	told := map[UserTake]bool{}
	for _, t := range s.Takes {
		who := UserTake{Activity: t.Activity, SKU: t.SKU, User: t.User}
		told[who] = true
		if have := tallies[who]; t.Qty != have.counted {
			f.add(t.SKU, ID{}, "user %q, activity %q: counted are %d, the reservations take %d", t.User, t.Activity, t.Qty, have.counted)
		}
	}
	limits := map[PurchaseLimit]int64{} // by activity and SKU; Units 0
	for _, l := range s.Limits {
		limits[PurchaseLimit{Activity: l.Activity, SKU: l.SKU}] = l.Units
	}
	for _, who := range order {
		limit, always := limits[PurchaseLimit{Activity: who.Activity, SKU: who.SKU}]
		f.within(who, tallies[who], limit, always, told[who])
	}
	f.openOnlyHeld(s)
	return f.list
}

// tally is what a user has of something: Units of a SKU in an activity, or reservations.
type tally struct {
	all     int64 // counted or not
	counted int64
	most    int64 // the highest limit of those that are counted
}

// tallied adds the reservations up by activity, SKU and user (Qty 0); order is that of the first rows.
func tallied(s *Snapshot) (tallies map[UserTake]tally, order []UserTake) {
	tallies = map[UserTake]tally{}
	skus := map[string]bool{}
	for i := range s.SKUs {
		skus[s.SKUs[i].SKU] = true
	}
	add := func(who UserTake, units, limit int64, counted bool) {
		t, known := tallies[who]
		if !known {
			order = append(order, who)
		}
		t.all += units
		if counted {
			t.counted, t.most = t.counted+units, max(t.most, limit)
		}
		tallies[who] = t
	}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		for j, l := range r.Lines {
			units, terms := r.taken(j), r.TermsOf(j)
			if r.User != "" && units > 0 && (len(skus) == 0 || skus[l.SKU]) {
				add(UserTake{Activity: terms.Activity, SKU: l.SKU, User: r.User}, units, terms.Limit, j < len(r.Counted) && r.Counted[j])
			}
		}
		if r.CountsOpen {
			add(UserTake{User: r.User}, 1, r.OpenLimit, true)
		}
	}
	return tallies, order
}

// within: what the user has is counted, and no more than the limit. always: limit holds for every unit; otherwise for what was counted.
func (f *findings) within(who UserTake, have tally, limit int64, always, told bool) {
	units := have.all
	if !always {
		units, limit = have.counted, have.most
	}
	if limit > 0 && units > limit {
		f.add(who.SKU, ID{}, "user %q, activity %q: %d units, the limit is %d", who.User, who.Activity, units, limit)
	}
	if !told && units > 0 && who.SKU != "" && limit > 0 {
		f.add(who.SKU, ID{}, "user %q, activity %q: %d units are not counted", who.User, who.Activity, units)
	}
}

// openOnlyHeld: what is no longer held is no open reservation of its user.
func (f *findings) openOnlyHeld(s *Snapshot) {
	for i := range s.Reservations {
		if r := &s.Reservations[i]; r.CountsOpen && r.State != StateHeld {
			f.add(r.firstSKU(), r.ID, "it is %s and counts among the open reservations of user %q", r.State, r.User)
		}
	}
}

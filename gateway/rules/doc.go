// Package rules says what a sale says: under whose rules a SKU is sold at a moment, how many units one user may have, how long a
// reservation is held, and which SKUs of a route are enforced. It does no I/O and reads no clock; the moment comes in from the
// caller, who takes it from the database's clock, so that all replicas open a sale at the same time.
//
// # From a configuration to a Book
//
//	config of a replica → Rules → Content ─→ the database (one for all replicas, with a version) ─→ Parse → Compile → Book
//
// Rules are what admission depends on. Replicas that roll from one configuration to the next must not disagree about limits, so all
// use what is stored in the database, and not what each has read from its file. A Book is Rules made fast; it never changes, and any
// number of goroutines may ask it.
//
// # Which rules hold
//
// They follow from SKU and time; the request decides nothing.
//
//   - The SKU's rule is the first of skus whose pattern matches, else defaults. It gives max_qty and consistency.
//   - The activity is the first listed of those that cover the SKU and are open. A window has its start and not its end, so that of two
//     that follow each other exactly one is open at every moment. Inside, the activity's purchase limit, hold and late_confirm hold;
//     without one, those of defaults hold, and units are counted under the activity "".
//   - If none is open, but one that covers the SKU has outside: refuse, it is not sold: NOT_STARTED with the earliest start still to
//     come, or ENDED if there is none.
//   - An activity that the request names must exist and cover the SKU, else BAD_REQUEST. If its own window is not open and it has
//     outside: refuse, the request is refused by that window, also if another activity is open: the buyer asked for that sale. In every
//     other case the name changes nothing. It does not choose between activities that overlap, or a user could have the limit of each
//     one; and it does not choose the time outside, or a name would lead around the limit of the one that is open.
//
// # After the sale
//
// A reservation outlives its window: it is paid, confirmed late, extended. The policy of its activity holds as long as the
// configuration has the activity, whatever the time is; for an activity that was removed, the one of defaults holds. Limits need no
// such rule, the database remembers with each line what it counted.
//
// # Content and its versions
//
// Content is JSON in one way only: equal Rules give equal bytes, whatever the time zone of a moment or the order of what has none
// (patterns of an activity, routes). So bytes tell whether two replicas have the same rules, and whether the database has seen these
// before.
//
// While an upgrade rolls, an old replica reads what a new one wrote. Fields that it does not know are left aside; those that it knows
// are read strictly: one that is missing, has another type or a value that is not allowed is an error, for a limit that is read as
// "none" would be worse than a replica that keeps the rules it has. A release whose new fields must not be left aside raises the
// format, and older ones refuse the whole content. Who cannot parse a content keeps its Book; who has none yet does not start.
//
// # The canary share
//
// A route with canary: n is enforced for n percent of the SKUs; the others run as shadow. A SKU is in if (h mod 100) < n, where h is
// the FNV-1a sum of its bytes (64 bits) with its bits mixed by the finalizer of MurmurHash3. It is the same on every replica and every
// route, has nothing to do with partitions, and a SKU that is in stays in as n grows. 0 is none, 100 is all.
package rules

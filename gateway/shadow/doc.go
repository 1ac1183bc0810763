// Package shadow decides about orders that are let through whatever it says, and counts what it would have said. It is how a shop sees
// what stockgate would do before it does anything: routes[].admit.shadow, and the SKUs that a canary share leaves out.
//
// # What it keeps
//
//	virtual stock   per SKU, what would be left: seeded from the database's facts, lowered by what was admitted here
//	takes           per activity, SKU and user, for purchase limits
//	request ids     of what was admitted, so that a retry is not a second order
//
// It writes nothing anywhere: neither Redis nor the database knows of it. Each replica has counters of its own. With several, each sees
// its share of the orders against the whole stock, so sold_out is said late; onboard with one replica, or read it as a lower bound.
//
// # Decisions, in order of precedence
//
//	bad_request     it could not be read, or names an activity that is not the SKU's
//	rate_limited    over a limit; it is asked before this package is (Refuse)
//	duplicate       a request id that was admitted here before
//	key_reused      the same, with other lines
//	not_started, ended   outside of its activity
//	unseeded        the SKU's stock is not known here yet
//	unknown_sku     the database does not have it
//	paused          the SKU is paused
//	purchase_limit  the user would have too many
//	sold_out        less is left than is asked for
//	admit           it would have been forwarded
//
// Of a cart, the first line that says no decides, and nothing is taken. What is refused is not remembered: a repeat is decided again.
//
// # Seeding
//
// No request waits for the database. A SKU that is asked for the first time is noted, counted as unseeded, and read by Run in the
// background, in batches; one that was asked for since the last pass is read again after Refresh. If its ver has moved and what the
// database has left of it has changed, the virtual stock begins anew at that number, and what was taken before is part of it: an
// operator has set it, or the shop's own sales were noticed in a stock table that is the shop's. A load, a pause or a set to the number
// that was there before changes nothing.
//
// # When units come back
//
// The gateway gives them back when the backend answers with anything but 2xx or 3xx, says Stockgate-Outcome: rejected, or was not
// reached; not when its answer was lost. What the order service cancels, confirms or lets expire later is not seen, and neither are
// open_per_user and lanes. So over days the virtual stock is lower than the true one would be, until it is seeded anew.
//
// # Bounds
//
// SKUs, request ids and takes are bounded (Config). Beyond the bound a new SKU stays unseeded, and the oldest request ids and takes are
// forgotten. Names that no database row has are dropped once nobody asks for them.
package shadow

// Package orderservice is a sample order service: what stands behind the gateway in the demo, and the oracle of tests and bench. It
// keeps every order in memory, so that at the end what the backend really accepted can be compared with what the gateway says.
//
//	POST   /orders                                {"sku","qty","user"} → 201 {"order":…}
//	POST   /checkout                              {"items":[{"sku","quantity"}],"user"} → 201 {"order":…}
//	GET    /orders/count                          {"orders":n}, cancelled ones not counted
//	GET    /orders?after=&limit=                  {"orders":[…],"next":…}, cancelled ones included
//	GET    /orders/by-reservation/{reservation}   {"state":"open|paid|cancelled"} or 404: what a gateway resolves an unknown by
//	POST   /orders/by-reservation/{reservation}/void   cancelled, and none is made of it later: a gateway's surplus
//	POST   /orders/{order}/pay                    paid
//	POST   /orders/{order}/refund                 {"lines":[{"sku","qty"}],"op"}: part of a paid order is taken back, once per op
//	DELETE /orders/{order}                        cancelled
//
// Paying, cancelling and refunding twice is answered like the first time. What cannot be done is 409: paying or refunding a cancelled
// order, refunding what is not paid or more than is left. An order of which nothing is left is cancelled.
//
// # What it shows
//
// It does what the gateway's documentation asks of an order service: it takes SKU and quantity from Stockgate-Lines, refuses what
// comes after Stockgate-Forward-By (nothing may be ordered on units that somebody else may have been given since), verifies the
// signature if it has keys, and keeps one order per reservation if told to (Config.Unique). It cancels what is not paid at
// Stockgate-Expires if told to (Config.Closes), before it answers anything else about it: then nobody pays for units that went back.
// A refusal of an order says `Stockgate-Outcome: rejected`, so that the units go back at once.
//
// # What it keeps
//
// At most Config.OrdersMax orders, about 500 bytes each, with every state that they were in and when. When they are full it refuses new ones; it never forgets one, since an
// oracle that forgets would call an oversell a success.
//
// # Faults
//
// Tests script what goes wrong before and after an order is recorded (Script, Always), and when a gateway asks by reservation
// (ScriptAsked, AlwaysAsked): it can fail, hang, say nonsense or lie.
package orderservice

// Package ordercall has what the calls share that stockgate makes of its own to an order service, about one reservation: what became of
// its order (package gateway/resolver), and make it void (package reconcile/compensation). Orders of buyers are forwarded by package
// gateway, whose signature covers more.
package ordercall

// Package api holds the JSON of the control API: what package control writes, package client reads and the dashboard shows. It is
// one place, so that server, commands and documentation cannot drift apart. The types carry no behaviour beyond their own text.
//
// Names of fields are part of the public contract: fields are added, never renamed and never given another meaning. Quantities are
// whole units from 0 to 2^53, the largest number that a JavaScript client reads exactly. Moments are RFC 3339 in UTC.
package api

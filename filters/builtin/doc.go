// Package builtin is the one place that says which filters there are and in which order a request passes them.
package builtin

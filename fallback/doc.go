// Package fallback stub.
package fallback

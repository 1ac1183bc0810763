// Package integratetest holds the order services of examples/ to what docs/integrate.md says of them: the three small ones, in Go, Java
// and Node, pass the same table of checks, and those and examples/orderservice bring orders through their whole life behind a real
// gateway. Nothing is skipped where a toolchain is missing; internal/testservices/install.sh installs it.
package integratetest

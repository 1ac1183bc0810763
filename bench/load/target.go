package load

import (
	"context"
	"fmt"
	"net"
	"net/url"
)

// Target is where orders are sent.
type Target struct {
	URL     string
	Address string // host:port
	head    []byte // request line and constant headers
}

// ParseTarget reads an http URL such as http://127.0.0.1:8080/orders; without a path it is /orders.
func ParseTarget(raw string) (Target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Target{}, err
	}
	if u.Scheme != "http" || u.Hostname() == "" {
		return Target{}, fmt.Errorf("%q is no http:// address with a host", raw)
	}
	if u.Path == "" {
		u.Path = "/orders"
	}
	t := Target{URL: u.String(), Address: u.Host}
	if u.Port() == "" {
		t.Address = net.JoinHostPort(u.Hostname(), "80")
	}
	t.head = []byte("POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: application/json\r\n")
	return t, nil
}

// Loopback reports whether every address of the host is one of this machine's loopback addresses. It may ask the resolver.
func Loopback(ctx context.Context, address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false, err
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false, nil
		}
	}
	return true, nil
}

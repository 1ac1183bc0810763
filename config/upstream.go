package config

import "reflect"

// NewUpstream gives an upstream with the defaults that a file's entry has, for a Config that is made in Go.
func NewUpstream(url string) Upstream {
	var u Upstream
	fillSection(reflect.ValueOf(Default()).Elem(), reflect.ValueOf(&u).Elem())
	u.URL = url
	return u
}

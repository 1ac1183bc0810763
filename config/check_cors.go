package config

import (
	"net/url"
	"slices"
	"strings"
)

func (ch *checker) checkCORS(path string, c *CORS) {
	if c == nil {
		return
	}
	for i, o := range c.Origins {
		ch.failIf(!validOrigin(o), elementPath(under(path, "origins"), i, ""),
			"must be *, null, or scheme and host in lower case as a browser sends them, such as https://shop.example or https://*.shop.example", quote(o))
	}
	ch.failIf(c.Credentials && slices.Contains(c.Origins, "*"), under(path, "credentials"),
		"must not be true with the origin *: every page could order in the buyer's name", "true")
	for key, names := range map[string][]string{"methods": c.Methods, "headers": c.Headers, "expose": c.Expose} {
		for i, name := range names {
			ch.failIf(!isToken(name), elementPath(under(path, key), i, ""), "must be a name without spaces", quote(name))
		}
	}
}

func validOrigin(s string) bool {
	if s == "*" || s == "null" {
		return true
	}
	u, err := url.Parse(strings.Replace(s, "://*.", "://", 1))
	return err == nil && u.Scheme != "" && u.Host != "" && u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == "" &&
		s == strings.ToLower(s) && !strings.Contains(u.Host, "*")
}

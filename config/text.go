package config

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// String gives the configuration as a file that Parse would read to the same, but for secrets, which are hidden.
func (c *Config) String() string {
	text, err := yaml.Marshal(c)
	if err != nil {
		return "configuration cannot be shown: " + err.Error()
	}
	return strings.ReplaceAll(string(text), "${", "$${") // what looks like a reference here is none any more
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// fileBytesMax bounds a configuration file. It is ten times what the largest list of SKU rules needs.
const fileBytesMax = 8 << 20

// Options is the world that a configuration refers to. The zero Options is the real one.
type Options struct {
	// LookupEnv finds ${NAME}. Defaults to os.LookupEnv. A variable that is set but empty is there.
	LookupEnv func(name string) (string, bool)
	// ReadFile finds ${file:/path}; one trailing newline is cut. Defaults to reading at most 1 MiB from disk.
	ReadFile func(path string) ([]byte, error)
	// AllowMissing lets references to variables and files that are not there pass as warnings, and leaves their keys unchecked: for
	// a look at a file away from the machine that has the secrets. The Config must then not be served.
	AllowMissing bool
}

func (o Options) withDefaults() Options {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = func(path string) ([]byte, error) { return readBounded(path, refFileMax) }
	}
	return o
}

// Load reads and checks a configuration file. If its content is at fault the error is Problems, all of them; if it cannot be read,
// another error. The Config is complete and may be used as it is.
func Load(path string, o Options) (*Config, error) {
	data, err := readBounded(path, fileBytesMax)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return Parse(path, data, o)
}

// Parse is Load for bytes; file is only for messages.
func Parse(file string, data []byte, o Options) (*Config, error) {
	if len(data) > fileBytesMax {
		return nil, Problems{{File: file, Rule: fmt.Sprintf("must have at most %d bytes", fileBytesMax)}}
	}
	node, err := parseYAML(data)
	if err != nil {
		return nil, Problems{syntaxProblem(file, err)}
	}
	o = o.withDefaults()
	var files []string
	read := o.ReadFile
	o.ReadFile = func(path string) ([]byte, error) {
		files = append(files, path)
		return read(path)
	}
	c, problems := decode(file, node, o)
	c.origin.files = files
	complete(c)
	problems = append(problems, Validate(c)...).sorted()
	if len(problems) > 0 {
		return nil, problems
	}
	return c, nil
}

var errDocuments = errors.New("must be one YAML document, there is a second after ---")

// parseYAML gives the document's root, nil if there is none: an empty file is a valid one.
func parseYAML(data []byte) (*yaml.Node, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, errDocuments
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return doc.Content[0], nil
}

// yamlLine finds the line in a syntax error of package yaml, which has no typed one.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func syntaxProblem(file string, err error) Problem {
	text := err.Error()
	p := Problem{File: file}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	p.Rule = "is not valid YAML: " + text
	if errors.Is(err, errDocuments) {
		p.Rule = text
	}
	return p
}

// complete fills in what depends on other keys than a default or an inherited value can say. It changes c, which nobody else has yet.
func complete(c *Config) {
	for i := range c.Routes {
		r := &c.Routes[i]
		if r.Admit != nil && len(r.Match.Methods) == 0 {
			r.Match.Methods = []string{"POST"}
		}
		if r.Admit != nil && r.Admit.Confirm == "" && c.Upstreams[r.Upstream].Resolve != "" {
			r.Admit.Confirm = ConfirmAPI
		}
	}
}

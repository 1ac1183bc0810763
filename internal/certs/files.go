package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
)

// Files are the PEM files of one side; "": there is none.
type Files struct {
	// Cert is this side's certificate, with those between it and the authority. Key is its key; both or neither.
	Cert, Key string
	// CA has the authorities that the other side's certificate is checked against.
	CA string
}

// contents are the files as they were read.
type contents struct {
	cert, key, ca []byte
}

// fileBytesMax is far beyond any bundle of authorities; it keeps a wrong name, of a device or a log, from filling the memory.
const fileBytesMax = 4 << 20

func (f Files) read() (contents, error) {
	var c contents
	for _, one := range [...]struct {
		what, name string
		into       *[]byte
	}{{"cert", f.Cert, &c.cert}, {"key", f.Key, &c.key}, {"ca", f.CA, &c.ca}} {
		if one.name == "" {
			continue
		}
		if info, err := os.Stat(one.name); err == nil && info.Size() > fileBytesMax {
			return c, fmt.Errorf("%s: %s has %d bytes, at most %d", one.what, one.name, info.Size(), fileBytesMax)
		}
		b, err := os.ReadFile(one.name)
		if err != nil {
			return c, fmt.Errorf("%s: %w", one.what, err)
		}
		*one.into = b
	}
	return c, nil
}

// sum tells contents apart.
func (c contents) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [...][]byte{c.cert, c.key, c.ca} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:]) // a hash takes everything
		h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// material is what contents say.
type material struct {
	pair *tls.Certificate // nil: none of our own
	pool *x509.CertPool   // nil: no authorities were named
}

func (c contents) parse() (material, error) {
	var m material
	if len(c.cert)+len(c.key) > 0 {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return m, fmt.Errorf("cert and key: %w", err)
		}
		m.pair = &pair
	}
	if c.ca != nil {
		m.pool = x509.NewCertPool()
		if !m.pool.AppendCertsFromPEM(c.ca) {
			return m, errors.New("ca: the file has no PEM certificate")
		}
	}
	return m, nil
}

// ends is when our own certificate runs out; zero: there is none.
func (m material) ends() time.Time {
	if m.pair == nil {
		return time.Time{}
	}
	return m.pair.Leaf.NotAfter // X509KeyPair has parsed it
}

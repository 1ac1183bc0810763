package gateway

import (
	"bytes"
	"errors"
)

// errBareLF: a line of a request's head ends in LF alone. Such a head may have no end that fasthttp knows, and would be waited for until
// the time-out.
var errBareLF = errors.New("a line of the header does not end in CR LF")

// headScan looks at the bytes of a connection as they come, for a bare LF in the head of a request. It sees only heads that begin a read:
// of one that was pipelined behind another request it does not know where it begins, and lets it pass. It belongs to the goroutine that
// serves the connection.
type headScan struct {
	armed bool // the next read begins a request
	on    bool // the next read goes on with its head
	named bool // the request line was there
	cr    bool // the last byte was CR
	line  int  // bytes of the line that has no end yet
}

// arm: the connection is idle, so the next read, if it comes before the next request is noticed, begins one.
func (s *headScan) arm() { *s = headScan{armed: true} }

// noticed: a request has begun. If nothing was read for it, it had been read with the one before.
func (s *headScan) noticed() { s.armed = false }

// bareLF looks at what a read gave.
func (s *headScan) bareLF(read []byte) bool {
	if s.armed && len(read) > 0 {
		s.armed, s.on = false, true
	}
	for s.on && len(read) > 0 {
		end := bytes.IndexByte(read, '\n')
		if end < 0 {
			s.line, s.cr = s.line+len(read), read[len(read)-1] == '\r'
			return false
		}
		if end > 0 && read[end-1] != '\r' || end == 0 && !s.cr {
			s.on = false
			return true
		}
		if empty := s.line+end == 1; !empty {
			s.named = true
		} else if s.named {
			s.on = false // the body follows
		}
		s.line, s.cr, read = 0, false, read[end+1:]
	}
	return false
}

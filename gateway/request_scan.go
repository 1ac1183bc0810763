package gateway

import (
	"bytes"
	"errors"
)

// fasthttp looks for the end of a line of the head by LF, or by CR LF, as the line has it; a head with both may have no end that it knows,
// and would be waited for until the time-out. In chunks and trailers it takes more than RFC 9112 has: a bare LF, folded lines, a space
// before the colon, control characters in extensions. What one parser takes and another does not is what requests are smuggled with.
var (
	errBareLF = errors.New("a line of the header does not end in CR LF")
	errChunks = errors.New("the chunks of the body, or the fields behind them, are not as RFC 9112 section 7.1 has them")
	errLength = errors.New("the line of Content-Length or Transfer-Encoding is too long")
)

// requestScan looks at the bytes of a connection as they come, before fasthttp does, and knows which of them are heads, bodies and
// trailers. It lets nothing of a request through from the first byte on that breaks the framing. What it does not understand, such as a
// length of letters, it leaves to fasthttp, which refuses that. It belongs to whoever reads from the connection.
type requestScan struct {
	part  part
	armed bool // of partUnknown: the next read begins a request

	line    int                 // bytes that the present line has had in earlier reads
	begun   [scanLineBytes]byte // the first of them
	cr      bool                // the last byte was CR
	named   bool                // a head has had its first line, a size line all its digits, a trailer's line its colon
	length  uint64              // of the body, or of what is left of it or of the chunk
	digits  int                 // of a size line
	chunked bool
	odd     bool // a length that fasthttp refuses
	upgrade bool // what follows may be no HTTP
}

// part is where the next byte belongs.
type part uint8

const (
	partHead part = iota
	partBody
	partSize
	partChunk
	partChunkEnd
	partTrailer
	partUnknown
)

// scanLineBytes is the longest line of Content-Length or Transfer-Encoding.
const scanLineBytes = 64

// arm: the connection is idle. If it is not known what its bytes are, those of the next read, if it comes before the next request is
// noticed, begin one.
func (s *requestScan) arm() { s.armed = s.part == partUnknown }

// noticed: a request has begun. If nothing was read for it, it had been read with the one before.
func (s *requestScan) noticed() { s.armed = false }

// look returns how much of what was read may go on. With an error it is less than all.
func (s *requestScan) look(read []byte) (good int, err error) {
	if s.armed && len(read) > 0 {
		*s = requestScan{}
	}
	for good < len(read) && err == nil {
		var n int
		n, err = s.step(read[good:])
		good += n
	}
	if err != nil {
		s.part = partUnknown
	}
	return good, err
}

// step goes over bytes of one part.
func (s *requestScan) step(b []byte) (n int, err error) {
	switch s.part {
	case partHead:
		return s.head(b)
	case partBody, partChunk:
		return s.data(b), nil
	case partSize:
		return s.each(b, s.sizeByte)
	case partChunkEnd:
		return s.each(b, s.chunkEndByte)
	case partTrailer:
		return s.each(b, s.trailerByte)
	}
	return len(b), nil
}

// head goes over one line.
func (s *requestScan) head(b []byte) (n int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		s.keep(b)
		s.cr = b[len(b)-1] == '\r'
		return len(b), nil
	}
	if end > 0 && b[end-1] != '\r' || end == 0 && !s.cr {
		return end, errBareLF
	}
	line := b[:end+1]
	if s.line > 0 {
		s.keep(line)
		line = s.begun[:min(s.line, scanLineBytes)]
	}
	whole := max(s.line, len(line))
	s.line, s.cr = 0, false
	switch {
	case whole > len("\r\n"):
		s.named = true
		err = s.field(line, whole)
	case s.named:
		s.endHead()
	}
	if err != nil {
		return end, err
	}
	return end + 1, nil
}

// keep notes the beginning of a line that goes on with the next read.
func (s *requestScan) keep(b []byte) {
	if s.line < scanLineBytes {
		copy(s.begun[s.line:], b)
	}
	s.line += len(b)
}

var (
	lengthName  = []byte("Content-Length:")
	codingName  = []byte("Transfer-Encoding:")
	upgradeName = []byte("Upgrade:")
)

// field looks for what says how long the body is. Of a line that was longer only the beginning is there.
func (s *requestScan) field(line []byte, whole int) error {
	switch line[0] | 0x20 {
	case 'c':
		if !startsWith(line, lengthName) {
			return nil
		}
		s.odd = s.odd || !s.readLength(line[len(lengthName):])
	case 't':
		if !startsWith(line, codingName) {
			return nil
		}
		s.chunked = true // fasthttp takes no other coding
	case 'u':
		s.upgrade = s.upgrade || startsWith(line, upgradeName)
		return nil
	default:
		return nil
	}
	if whole > scanLineBytes {
		return errLength
	}
	return nil
}

func startsWith(line, name []byte) bool {
	return len(line) >= len(name) && bytes.EqualFold(line[:len(name)], name)
}

// scanLengthDigits is enough for any length, and cannot overflow.
const scanLengthDigits = 18

func (s *requestScan) readLength(value []byte) bool {
	s.length = 0
	value = bytes.TrimLeft(bytes.Trim(value, " \t\r\n"), "0")
	for _, c := range value {
		if c < '0' || c > '9' || len(value) > scanLengthDigits {
			return false
		}
		s.length = 10*s.length + uint64(c-'0')
	}
	return true
}

// endHead finds what follows the head.
func (s *requestScan) endHead() {
	s.named = false
	switch {
	case s.odd:
		*s = requestScan{part: partUnknown}
	case s.chunked:
		s.part, s.length = partSize, 0
	case s.length > 0:
		s.part = partBody
	default:
		s.endRequest()
	}
}

// endRequest: another head follows, unless the protocol may change.
func (s *requestScan) endRequest() {
	next := partHead
	if s.upgrade {
		next = partUnknown
	}
	*s = requestScan{part: next}
}

func (s *requestScan) data(b []byte) int {
	n := len(b)
	if uint64(n) > s.length {
		n = int(s.length)
	}
	s.length -= uint64(n)
	if s.length == 0 {
		if s.part == partChunk {
			s.part = partChunkEnd
		} else {
			s.endRequest()
		}
	}
	return n
}

// each goes over bytes until the part is over. A byte that does not fit is not one of those that may go on.
func (s *requestScan) each(b []byte, take func(byte) bool) (n int, err error) {
	for now := s.part; n < len(b) && s.part == now; n++ {
		if !take(b[n]) {
			return n, errChunks
		}
	}
	return n, nil
}

// lineByte takes the two bytes at the end of a line, and no bare one of them. done: the byte was one of those, and ok.
func (s *requestScan) lineByte(c byte) (done, over, ok bool) {
	switch {
	case s.cr:
		s.cr = false
		return true, true, c == '\n'
	case c == '\r':
		s.cr = true
		return true, false, true
	}
	return false, false, c != '\n'
}

// chunkSizeDigits (chunks.go) bounds a size here, too.
func (s *requestScan) sizeByte(c byte) bool {
	done, over, ok := s.lineByte(c)
	if !ok || done {
		return ok && (!over || s.endSize())
	}
	if s.named {
		return textByte(c)
	}
	if d, hex := hexDigit(c); hex {
		s.length, s.digits = s.length<<4|uint64(d), s.digits+1
		return s.digits <= chunkSizeDigits
	}
	s.named = true
	return s.digits > 0 && (c == ';' || c == ' ' || c == '\t')
}

func (s *requestScan) endSize() bool {
	if s.digits == 0 {
		return false
	}
	s.part = partChunk
	if s.length == 0 {
		s.part = partTrailer
	}
	s.digits, s.named = 0, false
	return true
}

func (s *requestScan) chunkEndByte(c byte) bool {
	done, over, ok := s.lineByte(c)
	if over {
		s.part = partSize
	}
	return ok && done
}

// trailerByte: s.line is how many bytes the line has, s.named whether its colon was there.
func (s *requestScan) trailerByte(c byte) bool {
	done, over, ok := s.lineByte(c)
	if !ok || done {
		return ok && (!over || s.endTrailerLine())
	}
	s.line++
	if s.named {
		return textByte(c)
	}
	if c == ':' {
		s.named = true
		return s.line > 1
	}
	return tokenByte(c)
}

func (s *requestScan) endTrailerLine() bool {
	if s.line == 0 {
		s.endRequest()
		return true
	}
	ok := s.named
	s.line, s.named = 0, false
	return ok
}

// textByte reports whether a byte may stand in a value.
func textByte(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }

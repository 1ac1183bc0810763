package gateway

import (
	"bufio"
	"errors"
	"io"
)

// chunks reads a reply's body out of its chunks. Unlike the reader of net/http it never waits with bytes in hand: what has come of a chunk
// is given at once. Behind the last chunk it returns io.EOF; the trailer is left to be read.
type chunks struct {
	br   *bufio.Reader
	left uint64 // of the present chunk
	open bool   // its data has not been followed by CR LF yet
	err  error
}

var (
	errChunkEnd  = errors.New("a chunk does not end in CR LF")
	errChunkSize = errors.New("the size of a chunk is not a hexadecimal number that can be")
)

func (c *chunks) Read(p []byte) (int, error) {
	if c.left == 0 && c.err == nil {
		c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	if uint64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.br.Read(p)
	c.left -= uint64(n)
	c.err = noEnd(err)
	return n, c.err
}

// next reads up to the data of the next chunk.
func (c *chunks) next() error {
	if c.open {
		var end [2]byte
		if _, err := io.ReadFull(c.br, end[:]); err != nil {
			return noEnd(err)
		}
		if end != [2]byte{'\r', '\n'} {
			return errChunkEnd
		}
	}
	line, err := c.br.ReadSlice('\n')
	if err != nil {
		return noEnd(err)
	}
	if c.left, err = chunkSize(line); err != nil {
		return err
	}
	if c.open = c.left > 0; !c.open {
		return io.EOF
	}
	return nil
}

// chunkSizeDigits is enough for any chunk, and cannot overflow.
const chunkSizeDigits = 15

// chunkSize reads a size line; extensions mean nothing here (RFC 9112 section 7.1.1).
func chunkSize(line []byte) (size uint64, err error) {
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return 0, errChunkSize
	}
	digits := 0
	for _, b := range line[:len(line)-2] {
		d, ok := hexDigit(b)
		if !ok {
			if b != ';' && b != ' ' && b != '\t' {
				return 0, errChunkSize
			}
			break
		}
		size = size<<4 | uint64(d)
		if digits++; digits > chunkSizeDigits {
			return 0, errChunkSize
		}
	}
	if digits == 0 {
		return 0, errChunkSize
	}
	return size, nil
}

// noEnd is err, but an end is none where more must come.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

package gateway

import (
	"errors"
	"strings"
	"testing"
)

// scanned is how much of a connection's bytes may go on when they are read in two pieces, or in single bytes with cut -1.
func scanned(text string, cut int) (passed string, err error) {
	var s requestScan
	pieces := strings.Split(text, "")
	if cut >= 0 {
		pieces = []string{text[:cut], text[cut:]}
	}
	for _, piece := range pieces {
		good, err := s.look([]byte(piece))
		passed += piece[:good]
		if err != nil {
			return passed, err
		}
	}
	return passed, nil
}

const (
	scannedHead  = "POST /x HTTP/1.1\r\nHost: h\r\ntransfer-encoding:\tChunked \r\n\r\n"
	scannedSized = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0004\r\nUser-Agent: " +
		"a very long name of a client, longer than what is kept of a line\r\n\r\n\n\n\n\n"
)

// TestC077_StrictChunks: a body in chunks and what follows it must be as RFC 9112 section 7.1 has them, also in a request that is pipelined
// behind others, and wherever reads cut the bytes. Of a broken one nothing passes from the byte on that breaks it.
func TestC077_StrictChunks(t *testing.T) {
	t.Parallel()
	f := func(good, bad string, want error) {
		t.Helper()
		for _, before := range []string{"", scannedSized, "\r\n" + scannedHead + "1\r\n\n\r\n0\r\nA:\tb\r\n\r\n"} {
			text := before + good + bad
			for cut := -1; cut <= len(text); cut++ {
				got, err := scanned(text, cut)
				wantPassed := before + good
				if want == nil {
					wantPassed = text
				}
				if !errors.Is(err, want) || got != wantPassed {
					t.Fatalf("%q cut at %d: passed %q, %v", text, cut, got, err)
				}
			}
		}
	}
	f(scannedHead+"3\r\n\n\r\n\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n", "GET / HTTP/1.1\r\n", nil)
	f(scannedHead+"1 \r\nx\r\n0;last\r\nX: y\r\nZ:\x80\r\n\r\n", scannedSized, nil)
	f(scannedHead+"1", "\n", errChunks)
	f(scannedHead+"1;a", "\x00b\r\n", errChunks)
	f(scannedHead+"1;a", "\nb\r\n", errChunks)
	f(scannedHead+"1\r", "x\n", errChunks)
	f(scannedHead+"1;a\r", "b\r\n", errChunks)
	f(scannedHead, "\r\n"[1:], errChunks)
	f(scannedHead+"\r", "\n", errChunks)
	f(scannedHead, ";\r\n", errChunks)
	f(scannedHead, "+1\r\n", errChunks)
	f(scannedHead+"0", "x1\r\n", errChunks)
	f(scannedHead+strings.Repeat("1", 15), "1\r\n", errChunks)
	f(scannedHead+"1\r\nx", "y\r\n", errChunks)
	f(scannedHead+"1\r\nx", "\n0\r\n", errChunks)
	f(scannedHead+"0", "\n\r\n", errChunks)
	f(scannedHead+"0\r\n", "\n", errChunks)
	f(scannedHead+"0\r\nX: y", "\n\r\n", errChunks)
	f(scannedHead+"0\r\nX: y\r\n", " z\r\n\r\n", errChunks)
	f(scannedHead+"0\r\nX", " : y\r\n\r\n", errChunks)
	f(scannedHead+"0\r\n", ": y\r\n\r\n", errChunks)
	f(scannedHead+"0\r\nX\r", "\n\r\n", errChunks)
	f(scannedHead+"0\r\nX: ", "\x00\r\n\r\n", errChunks)
	f("GET / HTTP/1.1\r\nHost: h", "\n\r\n", errBareLF)
	f("GET / HTTP/1.1\r\nTransfer-Encoding:"+strings.Repeat(" ", 60)+"chunked\r", "\n\r\n", errLength)
}

// TestWhatIsNotHTTPPasses: behind an upgrade come frames, and a length that fasthttp refuses is its business.
func TestWhatIsNotHTTPPasses(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"} {
		text := head + "\n\n\n"
		for cut := -1; cut <= len(text); cut++ {
			if got, err := scanned(text, cut); err != nil {
				t.Errorf("%q cut at %d: passed %q, %v", text, cut, got, err)
			}
		}
	}
	var s requestScan
	_, _ = s.look([]byte("GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"))
	s.arm() // there was no upgrade
	if _, err := s.look([]byte("GET / HTTP/1.1\n")); !errors.Is(err, errBareLF) {
		t.Errorf("the next request is not looked at: %v", err)
	}
}

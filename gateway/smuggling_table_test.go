package gateway

import "strings"

// Sources of techniques. "RFC" numbers are sections of what the technique breaks or uses.
const (
	srcLinhart  = "Linhart, Klein, Heled, Orrin: HTTP Request Smuggling (2005); CWE-444"
	srcReborn   = "Kettle: HTTP Desync Attacks: Request Smuggling Reborn (PortSwigger, 2019)"
	srcBrowser  = "Kettle: Browser-Powered Desync Attacks (PortSwigger, 2022)"
	srcMustDie  = "Kettle: HTTP/1.1 must die: the desync endgame (PortSwigger, 2025)"
	srcChunks   = "Weikop: Funky chunks (w4ke.info, 2025)"
	srcH2C      = "Miller: BishopFox/h2csmuggler; RFC 9110 7.8"
	srcHops     = "Davison: Abusing HTTP hop-by-hop request headers (2019)"
	srcPersist  = "RFC 9112 6.3"
	srcDigits   = "RFC 9110 8.6"
	srcTEAndCL  = srcReborn + "; RFC 9112 6.1; valyala/fasthttp#1719; litespeedtech/openlitespeed#392; cloudwego/hertz#1490"
	srcTE10     = "valyala/fasthttp#2330; RFC 9112 6.1"
	srcSpace    = "CVE-2019-16276 (Go); RFC 9112 5.1"
	srcNoChunk  = "CVE-2019-18277 (HAProxy: a coding that is not chunked)"
	srcChunkLF  = "CVE-2025-22871 (Go); " + srcChunks
	srcChunkExt = "CVE-2025-55315 (Kestrel); " + srcChunks
	srcNumbers  = "CVE-2023-38697 (protocol-http1: signs and 0x in lengths and sizes, LF in extensions)"

	// Two public collections, by the name that they have for a technique.
	srcBurp  = "PortSwigger/http-request-smuggler, DesyncBox: "
	srcProbe = "MDA2AV/Http11Probe, smuggling: "
)

// technique is a published way to make two parsers see other requests in the same bytes.
type technique struct {
	name   string
	source string
	bytes  string // PATH stands for the target; a second order follows on the same connection
	// meaning is how many requests reach the backend, each of them counted: 0 = 400 and the connection ends.
	meaning int
	status  int // of a refusal that is no 400; 0: 400
}

const (
	smuggledPost   = "POST PATH HTTP/1.1\r\nHost: h\r\n"
	smuggledSized  = "Content-Length: 38\r\n\r\n" + goodBody
	smuggledChunks = "26\r\n" + goodBody + "\r\n0\r\n\r\n"
	smuggledCoded  = smuggledPost + "Transfer-Encoding: chunked\r\n\r\n"
)

// chunkedAs is a chunked order with a piece of its framing exchanged for another.
func chunkedAs(old, piece string) string {
	return smuggledCoded + strings.Replace(smuggledChunks, old, piece, 1)
}

func lengths() []technique {
	sized := func(name, source, value string, meaning int) technique {
		return technique{name: name, source: source, bytes: smuggledPost + "Content-Length:" + value + "\r\n\r\n" + goodBody, meaning: meaning}
	}
	return []technique{
		{name: "CL.TE", source: srcTEAndCL, bytes: smuggledPost + "Content-Length: 51\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggledChunks},
		{name: "TE.CL", source: srcTEAndCL, bytes: smuggledPost + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + smuggledChunks},
		{name: "CL 0 and TE", source: srcTEAndCL,
			bytes: smuggledPost + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggledChunks},
		{name: "two CL, different", source: srcLinhart + "; " + srcPersist, bytes: smuggledPost + "Content-Length: 0\r\n" + smuggledSized},
		{name: "two CL, equal", source: srcPersist, bytes: smuggledPost + "Content-Length: 38\r\n" + smuggledSized},
		{name: "CL and content_length", source: srcBurp + "underjoin1", bytes: smuggledPost + "Content_Length: 0\r\n" + smuggledSized, meaning: 1},
		sized("CL list", srcPersist+"; "+srcDigits, " 38, 38", 0),
		sized("CL list of two", srcBurp+"CL-commasuffix; RFC 9112 6.3", " 38, 0", 0),
		sized("CL +", srcNumbers+"; "+srcBurp+"CL-plus", " +38", 0),
		sized("CL -", srcBurp+"CL-minus; RFC 9110 8.6", " -0", 0),
		sized("CL hex", srcNumbers, " 0x26", 0),
		sized("CL 38 0", srcProbe+"cl-internal-space; RFC 9110 8.6", " 38 0", 0),
		sized("CL empty", "HAProxy: BUG/MAJOR: http: reject any empty content-length header value; RFC 9110 8.6", "", 0),
		sized("CL decimal point", srcBurp+"CL-dec", " 38.0", 0),
		sized("CL overflow", srcDigits, " 18446744073709551654", 0),
		sized("CL wide digits", srcDigits, " \xd9\xa3\xd9\xa8", 0),
		sized("CL behind a tab", "RFC 9110 5.5 (white space around a value is allowed)", "\t38 ", 1),
		sized("CL with zeros in front", srcBurp+"CL-pad; RFC 9110 8.6 (digits)", " 038", 1),
	}
}

func codings() []technique {
	coded := func(name, source, line string, meaning int) technique {
		return technique{name: name, source: source, bytes: smuggledPost + line + "\r\n\r\n" + smuggledChunks, meaning: meaning}
	}
	return []technique{
		coded("TE xchunked", srcReborn+"; "+srcProbe+"te-xchunked", "Transfer-Encoding: xchunked", 0),
		coded("TE quoted", srcBurp+"quoted", `Transfer-Encoding: "chunked"`, 0),
		coded("TE identity", "cloudwego/hertz#1490; "+srcProbe+"te-identity", "Transfer-Encoding: identity", 0),
		coded("TE chunked, identity", srcBurp+"commaCow", "Transfer-Encoding: chunked, identity", 0),
		coded("TE identity, chunked", "cloudwego/hertz#1490; "+srcBurp+"cowComma", "Transfer-Encoding: identity, chunked", 0),
		coded("TE chunked, chunked", srcProbe+"te-double-chunked; RFC 9112 6.1", "Transfer-Encoding: chunked, chunked", 0),
		coded("TE empty element", srcProbe+"te-leading-comma", "Transfer-Encoding: ,chunked", 0),
		coded("TE parameter", "RFC 9112 7.1", "Transfer-Encoding: chunked;q=1", 0),
		coded("TE empty", srcProbe+"te-empty-value", "Transfer-Encoding:", 0),
		coded("TE vertical tab", srcNoChunk+"; "+srcBurp+"prefix1:11", "Transfer-Encoding: \vchunked", 0),
		coded("TE form feed", srcNoChunk+"; "+srcBurp+"prefix1:12", "Transfer-Encoding: \fchunked", 0),
		coded("TE NUL behind", srcBurp+"suffix1:0", "Transfer-Encoding: chunked\x00", 0),
		coded("TE high space", srcBurp+"unispace", "Transfer-Encoding: \xa0chunked", 0),
		coded("TE twice", srcBurp+"dualchunk; valyala/fasthttp#2303", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", 0),
		coded("TE twice, the other way", srcBurp+"revdualchunk; valyala/fasthttp#2303", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked", 0),
		coded("TE with a space before the colon", srcSpace+"; "+srcBurp+"space1", "Transfer-Encoding : chunked", 0),
		coded("TE with a tab before the colon", srcSpace+"; "+srcBurp+"namesuffix1:9", "Transfer-Encoding\t: chunked", 0),
		coded("TE folded", srcBurp+"tabwrap; RFC 9112 5.2", "Transfer-Encoding:\r\n chunked", 0),
		coded("TE in a folded line", srcBurp+"nameprefix1; RFC 9112 5.2", "X: y\r\n Transfer-Encoding: chunked", 0),
		coded("TE behind a bare LF", srcBurp+"badsetupLF; RFC 9112 2.2", "X: y\nTransfer-Encoding: chunked", 0),
		coded("TE behind a bare CR", srcBurp+"badsetupCR; RFC 9112 2.2", "X: y\rTransfer-Encoding: chunked", 0),
		coded("TE behind a tab", srcBurp+"prefix1:9, tabsuffix; RFC 9110 5.5", "Transfer-Encoding: \tchunked\t", 1),
		coded("TE in capitals", srcBurp+"UPPERCASE; RFC 9112 7 (names of codings have no case)", "TRANSFER-ENCODING: CHUNKED", 1),
		{name: "Transfer_Encoding beside CL", source: srcBurp + "underjoin1",
			bytes: smuggledPost + "Transfer_Encoding: chunked\r\n" + smuggledSized, meaning: 1},
		{name: "TE on HTTP/1.0", source: srcTE10, bytes: "POST PATH HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggledChunks},
		{name: "TE and CL on HTTP/1.0", source: srcTE10,
			bytes: "POST PATH HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 51\r\n\r\n" + smuggledChunks},
		{name: "TE in the first line's fold", source: "RFC 9112 2.2",
			bytes: "POST PATH HTTP/1.1\r\n Transfer-Encoding: chunked\r\nHost: h\r\n" + smuggledSized},
	}
}

func chunkings() []technique {
	line, end := "26\r\n", "\r\n0\r\n\r\n"
	as := func(name, source, old, piece string, meaning int) technique {
		return technique{name: name, source: source, bytes: chunkedAs(old, piece), meaning: meaning}
	}
	return []technique{
		as("chunk size +", srcNumbers, line, "+26\r\n", 0),
		as("chunk size -", srcProbe+"chunk-negative; RFC 9112 7.1", line, "-26\r\n", 0),
		as("chunk size 0x", srcNumbers, line, "0x26\r\n", 0),
		as("chunk size in front of a space", srcProbe+"chunk-leading-sp; RFC 9112 7.1", line, " 26\r\n", 0),
		as("chunk size with an underscore", srcProbe+"chunk-underscore; RFC 9112 7.1", line, "2_6\r\n", 0),
		as("chunk size missing", "RFC 9112 7.1", line, "\r\n", 0),
		as("chunk size overflow", "RFC 9112 7.1", line, "10000000000000026\r\n", 0),
		as("chunk size behind a bare LF", srcChunkLF, line, "26\n", 0),
		as("chunk size behind a bare CR", srcProbe+"chunk-bare-cr-term; RFC 9112 2.2", line, "26\rX\r\n", 0),
		as("extension behind a bare LF", srcChunkLF, line, "26;\n", 0),
		as("extension with a bare LF", srcChunkExt, line, "26;a\nb\r\n", 0),
		as("extension with a bare CR", srcProbe+"chunk-ext-cr; RFC 9112 2.2", line, "26;a\rb\r\n", 0),
		as("data beyond its size", srcChunks+"; "+srcProbe+"chunk-spill", end, "XX0\r\n\r\n", 0),
		as("data without its end", srcProbe+"chunk-missing-trailing-crlf", end, "0\r\n\r\n", 0),
		as("data with a bare LF behind", srcProbe+"chunk-lf-term", end, "\n0\r\n\r\n", 0),
		as("last chunk behind a bare LF", srcChunkLF, end, "\r\n0\n\r\n", 0),
		as("fields of framing in the trailer", "RFC 9110 6.5.1",
			end, "\r\n0\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\nHost: evil\r\n\r\n", 0),
		// fasthttp takes these five.
		as("extension with NUL", srcProbe+"chunk-ext-ctrl; RFC 9112 7.1.1", line, "26;a\x00\r\n", 0),
		as("end behind a bare LF", srcProbe+"chunk-lf-trailer", end, "\r\n0\r\n\n", 0),
		as("trailer behind a bare LF", "RFC 9112 7.1.2", end, "\r\n0\r\nX: y\n\r\n", 0),
		as("trailer folded", "RFC 9112 5.2", end, "\r\n0\r\nX: y\r\n z\r\n\r\n", 0),
		as("trailer with a space before the colon", srcSpace, end, "\r\n0\r\nX : y\r\n\r\n", 0),
		as("extension", "RFC 9112 7.1.1 (to be ignored)", line, "26;a=b\r\n", 1),
		as("chunk size with zeros in front", "RFC 9112 7.1", line, "0026\r\n", 1),
		as("fields in the trailer", "RFC 9110 6.5.1", end, "\r\n0\r\nX-User-Id: root\r\nX-Else: y\r\n\r\n", 1),
	}
}

func heads() []technique {
	headed := func(name, source, lines string, meaning int) technique {
		return technique{name: name, source: source, bytes: smuggledPost + lines + smuggledSized, meaning: meaning}
	}
	from := func(name, source, line string, meaning int) technique {
		return technique{name: name, source: source, bytes: line + "\r\nHost: h\r\n" + smuggledSized, meaning: meaning}
	}
	return []technique{
		headed("folded line", "RFC 9112 5.2", "X: y\r\n z\r\n", 0),
		headed("bare LF", "RFC 9112 2.2", "X: y\n", 0),
		headed("bare CR", "RFC 9112 2.2", "X: y\rz\r\n", 0),
		headed("CR CR LF", "RFC 9112 2.2", "X: y\r\r\n", 0),
		headed("NUL in a name", "RFC 9110 5.1", "X\x00: y\r\n", 0),
		headed("NUL in a value", "RFC 9110 5.5", "X: \x00y\r\n", 0),
		headed("space before the colon", srcSpace, "X : y\r\n", 0),
		headed("no colon", "RFC 9112 5", "X\r\n", 0),
		headed("no name", "RFC 9112 5", ": y\r\n", 0),
		headed("two Hosts", "RFC 9112 3.2", "Host: evil\r\n", 0),
		{name: "Host with a space", source: "RFC 9112 3.2", bytes: "POST PATH HTTP/1.1\r\nHost: h evil\r\n" + smuggledSized},
		{name: "Host with a user", source: "RFC 9110 4.2.4", bytes: "POST PATH HTTP/1.1\r\nHost: h@evil\r\n" + smuggledSized},
		{name: "Host with a path", source: "RFC 9112 3.2", bytes: "POST PATH HTTP/1.1\r\nHost: evil/?h\r\n" + smuggledSized},
		{name: "Host as a list", source: srcProbe + "multiple-host-comma; RFC 9112 3.2",
			bytes: "POST PATH HTTP/1.1\r\nHost: h,evil\r\n" + smuggledSized},
		headed("Connection lists the length", srcHops, "Connection: Content-Length\r\n", 1),
		headed("Connection lists Host and Transfer-Encoding", srcHops, "Connection: Host, Transfer-Encoding, X-Forwarded-For\r\n", 1),
		headed("Upgrade: h2c", srcH2C, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", 1),
		headed("Upgrade: h2c without Connection", srcH2C, "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", 1),
		headed("two kinds of Upgrade", srcH2C, "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n", 1),
		{name: "HTTP/2 by prior knowledge", source: srcH2C, bytes: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
		from("absolute form to another host", "RFC 9112 3.2.2", "POST http://evil/orders HTTP/1.1", 0),
		from("absolute form with a user", "RFC 9110 4.2.4", "POST http://h@evil/orders HTTP/1.1", 0),
		from("absolute form of another scheme", "RFC 9112 3.2.2", "POST ftp://h/orders HTTP/1.1", 0),
		from("absolute form to our host", "RFC 9112 3.2.2", "POST http://hPATH HTTP/1.1", 1),
		from("authority form", "RFC 9112 3.2.3", "CONNECT evil:80 HTTP/1.1", 0),
		from("HTTP/1.1 twice", "RFC 9112 3", "POST PATH HTTP/1.1 HTTP/1.1", 0),
		from("version 1.2", "RFC 9112 2.3", "POST PATH HTTP/1.2", 0),
		from("version without a digit", "RFC 9112 2.3", "POST PATH HTTP/1.", 0),
		from("version in small letters", "RFC 9112 2.3", "POST PATH http/1.1", 0),
		from("tab in the request line", "RFC 9112 3", "POST\tPATH\tHTTP/1.1", 0),
		from("two spaces in the request line", "RFC 9112 3", "POST  PATH HTTP/1.1", 0),
		from("space in the target", "RFC 9112 3.2", "POST PATH x HTTP/1.1", 0),
		from("a bare CR in the request line", "RFC 9112 2.2", "POST PATH\r HTTP/1.1", 0),
	}
}

func expectations() []technique {
	const expected = "Expect: %\r\n"
	with := func(name, source, value string, status int) technique {
		return technique{name: name, source: source,
			bytes: smuggledPost + strings.Replace(expected, "%", value, 1) + smuggledSized, status: status}
	}
	return []technique{
		with("Expect of something else", "RFC 9110 10.1.1", "x", 417),
		with("Expect with more in front", srcMustDie+"; "+srcBurp+"CL-expect-obfs", "y 100-continue", 417),
		with("Expect as a list", "RFC 9110 10.1.1 (a list)", "100-continue, x", 417),
		with("Expect twice", "RFC 9110 10.1.1 (a list)", "100-continue\r\nExpect: x", 0),
		with("Expect twice, the other way", "RFC 9110 10.1.1 (a list)", "x\r\nExpect: 100-continue", 0),
		{name: "Expect folded", source: "RFC 9112 5.2", bytes: smuggledPost + "Expect:\r\n 100-continue\r\n" + smuggledSized},
		{name: "0.CL by Expect and an early answer", source: srcMustDie, status: 413,
			bytes: smuggledPost + "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"},
		{name: "pipelined behind a body that is too large", source: "RFC 9112 9.3 (read all of a body, or close)", status: 413,
			bytes: smuggledPost + "Content-Length: 99999999\r\n\r\n"},
	}
}

// plainOnly are for methods that a guarded path does not take.
func plainOnly() []technique {
	body := "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 38\r\n\r\n" + goodBody
	length := itoa(len(body))
	return []technique{
		{name: "GET with a body that is an order", source: srcBrowser + "; RFC 9110 9.3.1", meaning: 1,
			bytes: "GET PATH HTTP/1.1\r\nHost: h\r\nContent-Length: " + length + "\r\n\r\n" + body},
		{name: "HEAD with a body that is an order", source: "RFC 9110 9.3.2", meaning: 1,
			bytes: "HEAD PATH HTTP/1.1\r\nHost: h\r\nContent-Length: " + length + "\r\n\r\n" + body},
		{name: "DELETE with a chunked body that is an order", source: "RFC 9110 9.3.5", meaning: 1,
			bytes: "DELETE PATH HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + hexOf(len(body)) + "\r\n" + body + "\r\n0\r\n\r\n"},
		{name: "CL.0: a body that the backend does not read", source: srcBrowser, meaning: 1,
			bytes: "POST PATH?unread HTTP/1.1\r\nHost: h\r\nContent-Length: " + length + "\r\n\r\n" + body},
		{name: "OPTIONS with two lengths", source: srcPersist,
			bytes: "OPTIONS PATH HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: " + length + "\r\n\r\n" + body},
	}
}

func hexOf(n int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[n>>4&0xf], digits[n&0xf]})
}

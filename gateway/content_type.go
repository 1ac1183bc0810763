package gateway

import (
	"bytes"

	"github.com/stockgate/stockgate/stock"
)

// media is what a Content-Type says of a body.
type media uint8

const (
	mediaOther media = iota
	mediaNone        // there is no Content-Type
	mediaJSON
	mediaForm
	mediaText // text/plain: what browsers write for a string
)

// openBody decides what the body is read as. A route with places in both forms takes the one that Content-Type names. A type that
// contradicts the places is refused: the body would be read as if the fields were absent, by us or by the backend.
func (r *reader) openBody(x *extractor) *problem {
	if len(r.body) == 0 || !x.usesBody && !x.usesForm {
		return nil
	}
	contentType, found, again := r.head.find("Content-Type")
	if again {
		return badRequest("Content-Type", "Content-Type is there twice, or in a spelling that some take for it")
	}
	said, charset := readMedia(contentType, found)
	if charset != nil && !named(charset, "utf-8") && !named(charset, "utf8") {
		return wrongMedia(contentType, "only utf-8 is read")
	}
	switch {
	case x.usesForm && said == mediaForm:
		return r.openForm()
	case !x.usesBody:
		return wrongMedia(contentType, "allowed is application/x-www-form-urlencoded")
	case said == mediaOther:
		return wrongMedia(contentType, "allowed is application/json")
	case said == mediaForm:
		return r.openMislabelled(x)
	}
	return r.openJSON()
}

func wrongMedia(contentType []byte, allowed string) *problem {
	return &problem{code: stock.CodeUnsupportedEncoded, field: "Content-Type", detail: "Content-Type is " + shown(contentType) + ", " + allowed}
}

// readMedia reads a Content-Type. charset is nil without one. Two of them, or an empty one, make a type that is not known.
func readMedia(contentType []byte, found bool) (said media, charset []byte) {
	mediaType, parameters, _ := bytes.Cut(contentType, []byte{';'})
	for len(parameters) > 0 {
		var parameter []byte
		parameter, parameters, _ = bytes.Cut(parameters, []byte{';'})
		name, text, _ := bytes.Cut(parameter, []byte{'='})
		if !named(bytes.Trim(name, " \t"), "charset") {
			continue
		}
		text = bytes.Trim(text, " \t\"'")
		if charset != nil || len(text) == 0 {
			return mediaOther, charset
		}
		charset = text
	}
	return mediaOf(bytes.Trim(mediaType, " \t"), found), charset
}

func mediaOf(mediaType []byte, found bool) media {
	const suffix = "+json"
	switch {
	case !found:
		return mediaNone
	case named(mediaType, "application/x-www-form-urlencoded"):
		return mediaForm
	case named(mediaType, "application/json"), named(mediaType, "text/json"),
		len(mediaType) > len(suffix) && named(mediaType[len(mediaType)-len(suffix):], suffix):
		return mediaJSON
	case named(mediaType, "text/plain"):
		return mediaText
	}
	return mediaOther
}

func (r *reader) openForm() *problem {
	if bytes.IndexByte(r.body, ';') >= 0 {
		return badRequest("body", "the form has a semicolon, which some read as an ampersand; write it as %3B")
	}
	r.form = r.body
	return nil
}

// openMislabelled reads JSON that is sent as a form, as curl -d does. It must not be a form with an order in it at the same time.
func (r *reader) openMislabelled(x *extractor) *problem {
	for _, key := range x.keys {
		if r.hasPair(r.body, key) {
			return badRequest("Content-Type", "Content-Type says that the body is a form, and a form with "+shown([]byte(key))+" could be read from it")
		}
	}
	return r.openJSON()
}

// twins refuses a parameter of the query under the name of a field that is read from the body, and the reverse: many backends put both
// into one list, and find in the query what the body does not have.
func (x *extractor) twins(r *reader) *problem {
	for _, name := range x.bodyOnly {
		if r.hasPair(r.target.query, name) {
			return badRequest(name, "the query has what could be taken for "+shown([]byte(name))+", which is read from the body")
		}
	}
	if len(x.queryOnly) == 0 || len(r.body) == 0 {
		return nil
	}
	contentType, found, again := r.head.find("Content-Type")
	if said, _ := readMedia(contentType, found); said != mediaForm && !again {
		return nil
	}
	for _, name := range x.queryOnly {
		if r.hasPair(r.body, name) {
			return badRequest(name, "the form has what could be taken for "+shown([]byte(name))+", which is read from the query")
		}
	}
	return nil
}

package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// object is a JSON object whose values are all scalars: json.Number, string, bool or nil. encoding/json's own decoding is too kind
// for stock: it takes fields twice, in any case, and drops those it does not know, so a slip of the pen would be obeyed.
type object map[string]any

// readObject reads the request's body, which must be one JSON object with no other than the allowed fields, each at most once. An
// absent body is an empty object.
func readObject(r *http.Request, allowed ...string) (object, error) {
	body, err := readBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return object{}, err
	}
	if !utf8.Valid(body) {
		return nil, refuse(stock.CodeBadRequest, "the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	o, err := decodeObject(dec, allowed)
	if err != nil {
		return nil, asBadBody(err)
	}
	return o, nil
}

// checkEncoding refuses compressed bodies: a bound on their bytes would bound nothing.
func checkEncoding(r *http.Request) error {
	encoding := r.Header.Get("Content-Encoding")
	if encoding == "" || strings.EqualFold(encoding, "identity") {
		return nil
	}
	return refuse(stock.CodeUnsupportedEncoded, "Content-Encoding is %s, must be absent", shorten(encoding))
}

func readBody(r *http.Request) ([]byte, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, ofBody(err, "control.body")
	}
	return body, nil
}

// ofBody says why a body could not be read; limit is the key of its bound.
func ofBody(err error, limit string) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return overLimit(stock.CodeBodyTooLarge, limit, fmt.Sprintf("%d bytes", tooLarge.Limit))
	}
	return refuse(stock.CodeBadRequest, "the body broke off: %v", err)
}

func asBadBody(err error) error {
	var problem *api.Problem
	if errors.As(err, &problem) {
		return problem
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(stock.CodeBadRequest, "the body is not JSON: it ends too early")
	}
	return refuse(stock.CodeBadRequest, "the body is not JSON: %v", err)
}

func decodeObject(dec *json.Decoder, allowed []string) (object, error) {
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, refuse(stock.CodeBadRequest, "the body is no JSON object")
	}
	o := object{}
	for dec.More() {
		if err := o.decodeField(dec, allowed); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse(stock.CodeBadRequest, "something follows the JSON object")
	}
	return o, nil
}

func (o object) decodeField(dec *json.Decoder, allowed []string) error {
	key, err := dec.Token()
	if err != nil {
		return err
	}
	name, _ := key.(string) // the decoder has checked that keys are strings
	if !slices.Contains(allowed, name) {
		return badField("field", shorten(name), "known are "+strings.Join(allowed, ", "))
	}
	if _, twice := o[name]; twice {
		return badField(name, "there twice", "allowed is once")
	}
	value, err := dec.Token()
	if err != nil {
		return err
	}
	if delim, nested := value.(json.Delim); nested {
		return badField(name, "an "+map[json.Delim]string{'{': "object", '[': "array"}[delim], "must be a single value")
	}
	o[name] = value
	return nil
}

// integer is the whole number in a field, min … max. Floats, exponents and numbers in strings are refused (C008).
func (o object) integer(name string, min, max int64) (int64, error) {
	allowed := fmt.Sprintf("must be a whole number from %d to %d", min, max)
	v, present := o[name]
	if !present {
		return 0, badField(name, "absent", allowed)
	}
	number, ok := v.(json.Number)
	if !ok {
		return 0, badField(name, rendered(v), allowed)
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < min || n > max {
		return 0, badField(name, rendered(v), allowed)
	}
	return n, nil
}

// text is the string in a field, "" if the field is absent. Control characters are refused: the text ends up in the ledger, in logs
// and on terminals.
func (o object) text(name string, most int) (string, error) {
	v, present := o[name]
	if !present {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", badField(name, rendered(v), "must be a string")
	}
	if len(s) > most || strings.ContainsFunc(s, unicode.IsControl) {
		return "", badField(name, rendered(v), fmt.Sprintf("must be at most %d bytes without control characters", most))
	}
	return s, nil
}

// rendered is a scalar as the request spelled it, shortened.
func rendered(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return shorten(v)
	case json.Number:
		return strings.Trim(shorten(v.String()), `"`)
	default:
		return fmt.Sprint(v)
	}
}

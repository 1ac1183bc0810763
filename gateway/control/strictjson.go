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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/stock"
)

// object is a JSON object whose values are scalars (json.Number, string, bool or nil), or lists of lines. encoding/json's own decoding
// is too kind for stock: it takes fields twice, in any case, and drops those it does not know, so a slip of the pen would be obeyed.
type object map[string]any

// listOfLines marks a field, in the list of the allowed ones, whose value is a list of objects {"sku","qty"}.
const listOfLines = "[]"

// readObject reads the request's body, which must be one JSON object with no other than the allowed fields, each at most once. An
// absent body is an empty object. Nothing may stand in the query.
func readObject(r *http.Request, allowed ...string) (object, error) {
	if _, err := queryOf(r); err != nil { // an op id that stands there would be passed over
		return nil, err
	}
	body, err := readBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return object{}, err
	}
	if !utf8.Valid(body) {
		return nil, refuse(stock.CodeBadRequest, "the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	o, err := decodeBody(dec, allowed)
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

func decodeBody(dec *json.Decoder, allowed []string) (object, error) {
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, refuse(stock.CodeBadRequest, "the body is no JSON object")
	}
	o, err := decodeObject(dec, allowed)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse(stock.CodeBadRequest, "something follows the JSON object")
	}
	return o, nil
}

// decodeObject reads what follows an opening brace, to the closing one.
func decodeObject(dec *json.Decoder, allowed []string) (object, error) {
	o := object{}
	for dec.More() {
		if err := o.decodeField(dec, allowed); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return o, err
}

func (o object) decodeField(dec *json.Decoder, allowed []string) error {
	key, err := dec.Token()
	if err != nil {
		return err
	}
	name, _ := key.(string) // the decoder has checked that keys are strings
	list := slices.Contains(allowed, name+listOfLines)
	if !list && !slices.Contains(allowed, name) {
		return badField("field", shorten(name), "known are "+strings.ReplaceAll(strings.Join(allowed, ", "), listOfLines, ""))
	}
	if _, twice := o[name]; twice {
		return badField(name, "there twice", "allowed is once")
	}
	value, err := dec.Token()
	if err != nil {
		return err
	}
	delim, nested := value.(json.Delim)
	switch {
	case list && delim == '[':
		o[name], err = decodeLines(dec, name)
		return err
	case list:
		return badField(name, "no list", `must be a list of lines {"sku":…,"qty":n}`)
	case nested:
		return badField(name, "an "+map[json.Delim]string{'{': "object", '[': "array"}[delim], "must be a single value")
	}
	o[name] = value
	return nil
}

// decodeLines reads what follows an opening bracket, to the closing one.
func decodeLines(dec *json.Decoder, name string) ([]object, error) {
	lines := []object{}
	for dec.More() {
		open, err := dec.Token()
		if err != nil {
			return nil, err
		}
		if open != json.Delim('{') {
			return nil, badField(name, "a list of something else", `must be a list of lines {"sku":…,"qty":n}`)
		}
		if len(lines) == linesMax {
			return nil, badField(name, "longer than "+strconv.Itoa(linesMax), "allowed are so many lines")
		}
		line, err := decodeObject(dec, []string{"sku", "qty"})
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	_, err := dec.Token()
	return lines, err
}

// lines is the list of lines in a field, merged; nil if the field is absent.
func (o object) lines(name string) ([]stock.Line, error) {
	list, present := o[name].([]object)
	if !present {
		return nil, nil
	}
	lines := make([]stock.Line, len(list))
	for i, line := range list {
		var err error
		if lines[i], err = line.line(); err != nil {
			return nil, err
		}
	}
	merged, err := stock.MergeLines(lines)
	if err != nil {
		return nil, badField(name, "not right", err.Error())
	}
	return merged, nil
}

// line is the SKU and quantity of an object; the quantity is 1 if it is absent.
func (o object) line() (stock.Line, error) {
	sku, err := o.text("sku", afterBytesMax)
	if err != nil {
		return stock.Line{}, err
	}
	if err := stock.CheckSKU(sku); err != nil {
		p := refuse(stock.CodeBadRequest, "%v", err)
		p.Field = "sku"
		return stock.Line{}, p
	}
	qty := int64(1)
	if _, present := o["qty"]; present {
		qty, err = o.integer("qty", 1, stock.MaxQuantity)
	}
	return stock.Line{SKU: sku, Qty: qty}, err
}

// flag is the truth value in a field, false if the field is absent.
func (o object) flag(name string) (bool, error) {
	v, present := o[name]
	if !present {
		return false, nil
	}
	set, ok := v.(bool)
	if !ok {
		return false, badField(name, rendered(v), "must be true or false")
	}
	return set, nil
}

// duration is the length of time in a field, 0 if the field is absent.
func (o object) duration(name string) (time.Duration, error) {
	if _, present := o[name]; !present {
		return 0, nil
	}
	text, err := o.text(name, reasonBytesMax)
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, badField(name, shorten(text), "must be a length of time of at least 1s, such as 25m or 1h30m")
	}
	return d, nil
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

package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// bound is one part of a range, ends included.
type bound struct {
	low, high         float64
	lowText, highText string
}

// parseBounds reads the range of a key of type t: parts "a..b" or "a" between bars. It bounds the length of texts, lists and maps.
func parseBounds(tag string, t reflect.Type) ([]bound, error) {
	var bs []bound
	for part := range strings.SplitSeq(tag, "|") {
		low, high, spans := strings.Cut(part, "..")
		if !spans {
			high = low
		}
		b := bound{lowText: low, highText: high}
		var err error
		if b.low, err = measureText(low, t); err != nil {
			return nil, fmt.Errorf("range %s: %w", tag, err)
		}
		if b.high, err = measureText(high, t); err != nil {
			return nil, fmt.Errorf("range %s: %w", tag, err)
		}
		bs = append(bs, b)
	}
	return bs, nil
}

func measureText(text string, t reflect.Type) (float64, error) {
	if byLength(t) {
		return strconv.ParseFloat(text, 64)
	}
	v := reflect.New(t).Elem()
	if err := setScalar(v, text); err != nil {
		return 0, err
	}
	return measure(v), nil
}

// byLength reports whether the range of a key of type t bounds its length.
func byLength(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Slice || t.Kind() == reflect.Map
}

// measure is what a range bounds. No range goes beyond 2^53, up to where float64 is exact.
func measure(v reflect.Value) float64 {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return float64(v.Len())
	case reflect.Int, reflect.Int64:
		return float64(v.Int())
	case reflect.Float64:
		return v.Float()
	}
	return v.Interface().(Rate).PerSecond() // the one other type with a range
}

// within is false for NaN, which is in no range.
func within(n float64, bs []bound) bool {
	for _, b := range bs {
		if n >= b.low && n <= b.high {
			return true
		}
	}
	return false
}

// rangeRule says what a range allows: "must be 0 or 400 to 499", "must have 1 to 32 bytes".
func rangeRule(t reflect.Type, bs []bound) string {
	verb, unit := "must be ", ""
	switch {
	case t.Kind() == reflect.String:
		verb, unit = "must have ", " bytes"
	case byLength(t):
		verb, unit = "must have ", " entries"
	}
	return verb + rangeText(bs) + unit
}

func rangeText(bs []bound) string {
	parts := make([]string, len(bs))
	for i, b := range bs {
		parts[i] = b.lowText
		if b.high != b.low {
			parts[i] += " to " + b.highText
		}
	}
	return strings.Join(parts, " or ")
}

package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	errBool   = errors.New("must be true or false")
	errWhole  = errors.New("must be a whole number")
	errNumber = errors.New("must be a number")
	errMoment = errors.New("must be a moment with its offset, such as 2026-11-11T00:00:00+08:00")
)

// setScalar reads text into dst. The text alone counts, not how YAML would type it, so that an id written 11.11 stays 11.11 and a
// number may come from a variable. Errors say what is allowed and leave the value out, which may be a secret.
func setScalar(dst reflect.Value, text string) error {
	if dst.Type() == timeType {
		return setMoment(dst, text)
	}
	if u, ok := dst.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch dst.Kind() {
	case reflect.String:
		dst.SetString(text)
	case reflect.Bool:
		return setBool(dst, text)
	case reflect.Int, reflect.Int64:
		return setInt(dst, text)
	case reflect.Float64:
		return setFloat(dst, text)
	default:
		return fmt.Errorf("BUG: keys of type %s cannot be read", dst.Type())
	}
	return nil
}

func setMoment(dst reflect.Value, text string) error {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return errMoment
	}
	dst.Set(reflect.ValueOf(t))
	return nil
}

// setBool takes the two words of YAML 1.2; yes and on are texts there.
func setBool(dst reflect.Value, text string) error {
	if text != "true" && text != "false" {
		return errBool
	}
	dst.SetBool(text == "true")
	return nil
}

// setInt also takes whole numbers with an exponent, for Helm writes 1000000 as 1e+06.
func setInt(dst reflect.Value, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("must be a whole number of at most %d digits", len(strconv.Itoa(math.MaxInt64))-1)
	}
	if err != nil {
		f, ferr := parseDecimal(text)
		if ferr != nil || !strings.ContainsAny(text, "eE") || f != math.Trunc(f) || f > wholeFloatMax {
			return errWhole
		}
		n = int64(f)
	}
	if dst.OverflowInt(n) {
		return errWhole
	}
	dst.SetInt(n)
	return nil
}

// wholeFloatMax is 2^53: up to here a float64 holds every whole number.
const wholeFloatMax = 1 << 53

func setFloat(dst reflect.Value, text string) error {
	f, err := parseDecimal(text)
	if err != nil {
		return errNumber
	}
	dst.SetFloat(f)
	return nil
}

// textOf shows a value as it would be written.
func textOf(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok && v.Type() != timeType {
		text, _ := m.MarshalText() // the marshalers of this package cannot fail
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

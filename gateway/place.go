package gateway

import (
	"strconv"
	"strings"
)

// PlaceKind says in which part of a request a field is looked for.
type PlaceKind uint8

// The kinds of place.
const (
	PlaceBody   PlaceKind = iota + 1 // JSON body: Path of keys and indices
	PlaceHeader                      // header field Name, compared without case
	PlaceQuery                       // query parameter Name
	PlacePath                        // segment Index of the path, from 1
	PlaceForm                        // field Name of an application/x-www-form-urlencoded body
	PlaceLine                        // inside a line of a cart: Path of keys and indices
	PlaceToken                       // claim Name of the verified token
)

// Place is one place of a request to take a field from.
type Place struct {
	Kind  PlaceKind
	Name  string   // PlaceHeader, PlaceQuery, PlaceForm, PlaceToken
	Path  []string // PlaceBody, PlaceLine; a key that is a number is also an index
	Index int      // PlacePath
}

// Body is a place in the JSON body, by dot path.
func Body(path string) Place { return Place{Kind: PlaceBody, Path: strings.Split(path, ".")} }

// InLine is a place inside a line of a cart, by dot path.
func InLine(path string) Place { return Place{Kind: PlaceLine, Path: strings.Split(path, ".")} }

// Header is a header field.
func Header(name string) Place { return Place{Kind: PlaceHeader, Name: name} }

// Query is a query parameter.
func Query(name string) Place { return Place{Kind: PlaceQuery, Name: name} }

// Segment is the n-th segment of the path, from 1.
func Segment(n int) Place { return Place{Kind: PlacePath, Index: n} }

// Form is a field of an application/x-www-form-urlencoded body.
func Form(name string) Place { return Place{Kind: PlaceForm, Name: name} }

// Token is a claim of the verified token.
func Token(claim string) Place { return Place{Kind: PlaceToken, Name: claim} }

// String writes the place as the configuration does, e.g. body.items.0.sku, or sku inside a line.
func (p Place) String() string {
	switch p.Kind {
	case PlaceBody:
		return "body." + strings.Join(p.Path, ".")
	case PlaceHeader:
		return "header." + p.Name
	case PlaceQuery:
		return "query." + p.Name
	case PlacePath:
		return "path." + strconv.Itoa(p.Index)
	case PlaceForm:
		return "form." + p.Name
	case PlaceToken:
		return "jwt." + p.Name
	case PlaceLine:
		return strings.Join(p.Path, ".")
	}
	return "none"
}

// Package config reads the file that a user writes and says, all at once, what is wrong with it. Only main imports it; main maps
// a Config to the Config structs of the other packages, so that they know nothing of YAML, files or environment variables.
//
// # From a file to a Config
//
//	bytes → YAML nodes → (defaults) ← values with ${…} replaced → completed Config → checks → Config or Problems
//
// There never is a half-filled Config. Default gives one in which every scalar has its value; reading a file lays the named keys
// over a fresh copy of it. Entries of lists and maps are filled with their own defaults, or with those they inherit (a hotspot
// override from hotspot.lane, an activity from defaults), before their keys are laid over. Lists and maps of named things that
// are absent are empty: there are no limits, routes or activities that nobody wrote down. What is null counts as absent.
//
// # One place for a key
//
// A key is a struct field. Its tags hold the name (yaml), the default, what it inherits, the allowed values (oneof) and range; its
// comment is the text of docs/configuration.md, which go generate writes and a test keeps current. Ranges may have several parts:
// range:"0|400..499". On a string, list or map the range bounds its length. Fields are read in the order of declaration, not of
// the file, so what is inherited stands above what inherits it. The first field of a struct that is listed is its label: the
// limit named per-ip has the key limits[per-ip].
//
// # Problems
//
// A Problem has the key, the line if the key came from a file, what must hold and the value. All of them are reported together:
// unknown keys, keys that stand twice, unreadable values, missing variables, ranges, and rules over several keys. Only a file that
// is not YAML at all stops early. A key whose value could not be read is not checked further, so that one mistake is one line.
//
// Secrets are of type Secret and print as [secret]. A value that came in through ${…} is never printed either, whatever its type:
// the Problem shows the reference instead.
//
// # Edge values of rates
//
// A rate of 0 never means "deny all". In hotspot it means no limit by rate; in limits, database.commit and fallback it is refused,
// because a limit that admits nobody is a mistake more often than a wish. A rate above 0 needs a burst of at least 1, for a bucket
// that holds no token never passes anyone. Below 1/h, above 1000000000/s, negative, NaN and infinite rates are refused.
//
// # What is not built yet
//
// The whole configuration language is accepted from the first release on, so that a file written today is valid later. Warnings
// names what runs in another way than written, Refusals what serve does not start with.
package config

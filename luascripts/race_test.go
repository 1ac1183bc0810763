//go:build race

package luascripts

const raceEnabled = true

package api

import "time"

// Configuration is what a replica runs by.
type Configuration struct {
	File string `json:"file,omitempty"` // "": there is none, so it cannot be reloaded
	// Version is a short name of all settings but secrets: replicas that run by the same have the same.
	Version  string    `json:"version"`
	LoadedAt time.Time `json:"loaded_at"`
	Last     *Reload   `json:"last_reload,omitempty"` // absent: none was tried since the start
}

// Reload is what became of a try to take the configuration file into use.
type Reload struct {
	At       time.Time `json:"at"`
	By       string    `json:"by"`     // file | signal | api
	Result   string    `json:"result"` // taken | unchanged | refused
	Changes  []string  `json:"changes,omitempty"`
	Problems []BadLine `json:"problems,omitempty"` // why it was refused; line 0: of no line
}

// What asked for a Reload: a look at the file, SIGHUP, POST /v1/reload.
const (
	ReloadByFile   = "file"
	ReloadBySignal = "signal"
	ReloadByAPI    = "api"
)

// The results of a Reload.
const (
	ReloadTaken     = "taken"
	ReloadUnchanged = "unchanged"
	ReloadRefused   = "refused" // nothing has changed
)

package config

// Scope says who shares a limit.
type Scope string

// The scopes.
const (
	ScopeReplica Scope = "replica" // each replica has its own
	ScopeFleet   Scope = "fleet"   // all replicas share it
)

// RateLimitHeaders says how answers tell what is left of a limit.
type RateLimitHeaders string

// The kinds of rate limit headers.
const (
	HeadersOff     RateLimitHeaders = "off"
	HeadersDraft10 RateLimitHeaders = "draft10"
	HeadersLegacy  RateLimitHeaders = "legacy"
)

// Limit is a set of token buckets, one per value of its key. A request takes one token, whatever its quantity.
type Limit struct {
	// Name in answers and metrics. Unique.
	Name string `yaml:"name" required:"true" range:"1..64"`
	// What has a bucket of its own: global, client_ip (IPv6 by /64), user, sku, activity, route, header.<name>, or a pair such as user+sku.
	// A request without the value, or without one of the two, passes. The activity is the one that the rules have for the SKU now.
	Key string `yaml:"key" required:"true" range:"1..256"`
	// Names of the routes whose requests the limit is for. Empty: all.
	Routes []string `yaml:"routes" range:"0..1000"`
	// Tokens that come in. 0 is refused, it would deny all.
	Rate Rate `yaml:"rate" required:"true" range:"1/h..1000000000/s"`
	// Tokens a bucket holds, so that many may pass at once. Below 1 none ever would.
	Burst int `yaml:"burst" required:"true" range:"1..1000000000"`
	// Values with a rate and a burst of their own, by value. For client_ip an address or a network: each address in it, or /64, has a bucket
	// of its own, and the longest network counts. For a pair two values joined by +, of which one may be * for every other.
	Overrides map[string]LimitOverride `yaml:"overrides" range:"0..1000" brackets:"true"`
	// Time in which a limit that was not asked for so long goes from a third of its rate and burst to all of them, so that cold backends
	// get less at first. Not with scope fleet. 0s: all at once.
	WarmUp Duration `yaml:"warm_up" default:"0s" range:"0s..1h"`
	// true: count what would be refused, in stockgate_limit_would_refuse_total, and refuse nothing.
	Shadow bool `yaml:"shadow" default:"false"`
	// replica: each replica has its own bucket. fleet: all replicas share it, in small lots from Redis; without Redis each has the rate divided
	// by the live replicas. A shared burst is at least a tenth of a second of the rate.
	Scope Scope `yaml:"scope" default:"replica" oneof:"replica fleet"`
}

// LimitOverride is the rate and burst of a value of a limit's key.
type LimitOverride struct {
	// Tokens that come in. 0: the limit does not apply to the value.
	Rate Rate `yaml:"rate" default:"0" range:"0|1/h..1000000000/s"`
	// Tokens a bucket holds: at least 1 with a rate, 0 without.
	Burst int `yaml:"burst" default:"0" range:"0..1000000000"`
}

// Hotspot keeps a SKU that everybody wants from taking the others' places. A lane belongs to a replica.
type Hotspot struct {
	Detect Detect `yaml:"detect"`
	// The lane of a hot SKU.
	Lane Lane `yaml:"lane"`
	// The lane that all other SKUs share.
	Shared SharedLane `yaml:"shared"`
	// SKUs that have a lane of their own always, by SKU. What is not named is as in hotspot.lane.
	Overrides map[string]Override `yaml:"overrides" range:"0..10000" brackets:"true"`
}

// Detect finds hot SKUs.
type Detect struct {
	// A SKU that is asked for more often than this, at this replica, gets a lane of its own, with the limits of hotspot.lane. 0: off.
	Rate Rate `yaml:"rate" default:"500/s" range:"0|1/h..1000000000/s"`
	// Time over which the rate is taken: a SKU is hot as soon as it was asked for more than rate × window times within one window.
	Window Duration `yaml:"window" default:"1s" range:"100ms..1m"`
	// Windows in a row in which a SKU must be asked for less than half as often as rate to lose its lane.
	Cool int `yaml:"cool" default:"10" range:"1..10000"`
	// Lanes that there may be by detection. With all taken, a SKU more than twice as hot as the least hot one takes that one's place.
	Lanes int `yaml:"lanes" default:"64" range:"1..1000"`
	// SKUs that are counted, about 256 bytes each. A SKU counts for too little by the requests of the window divided by this at most.
	Watched int `yaml:"watched" default:"1024" range:"16..1048576"`
}

// Lane bounds the requests for one hot SKU. Who is refused by it gets 429 SKU_LIMITED.
type Lane struct {
	// Requests let in. 0: no limit by rate.
	Rate Rate `yaml:"rate" default:"20000/s" range:"0|1/h..1000000000/s"`
	// Requests that may come at once. Unused with rate 0.
	Burst int `yaml:"burst" default:"20000" range:"0..1000000000"`
	// Requests worked on at a time.
	Concurrency int `yaml:"concurrency" default:"256" range:"1..1000000"`
	// Requests that may wait for their turn. 0: none waits.
	Queue int `yaml:"queue" default:"2000" range:"0..1000000"`
	// Longest wait for a turn, and then again for stock.
	MaxWait Duration `yaml:"max_wait" default:"500ms" range:"0s..60s"`
}

// SharedLane bounds the requests for all SKUs without a lane of their own. Who is refused by it gets 429 SKU_LIMITED.
type SharedLane struct {
	// Requests let in. 0: no limit by rate.
	Rate Rate `yaml:"rate" default:"0" range:"0|1/h..1000000000/s"`
	// Requests that may come at once. Unused with rate 0.
	Burst int `yaml:"burst" default:"0" range:"0..1000000000"`
	// Requests worked on at a time.
	Concurrency int `yaml:"concurrency" default:"1024" range:"1..1000000"`
	// Requests that may wait for their turn, all SKUs together. 0: none waits.
	Queue int `yaml:"queue" default:"8000" range:"0..1000000"`
	// Longest wait for a turn, and then again for stock.
	MaxWait Duration `yaml:"max_wait" default:"500ms" range:"0s..60s"`
}

// Lane gives the shared lane's bounds as a Lane's.
func (s SharedLane) Lane() Lane { return Lane(s) }

// Override is the lane of a SKU that always has one.
type Override struct {
	// Requests let in. 0: no limit by rate.
	Rate Rate `yaml:"rate" inherit:"hotspot.lane.rate" range:"0|1/h..1000000000/s"`
	// Requests that may come at once. Unused with rate 0.
	Burst int `yaml:"burst" inherit:"hotspot.lane.burst" range:"0..1000000000"`
	// Requests worked on at a time.
	Concurrency int `yaml:"concurrency" inherit:"hotspot.lane.concurrency" range:"1..1000000"`
	// Requests that may wait for their turn. 0: none waits.
	Queue int `yaml:"queue" inherit:"hotspot.lane.queue" range:"0..1000000"`
	// Longest wait for a turn, and then again for stock.
	MaxWait Duration `yaml:"max_wait" inherit:"hotspot.lane.max_wait" range:"0s..60s"`
}

// Lane gives the override's bounds as a Lane's.
func (o Override) Lane() Lane { return Lane(o) }

// LaneOf gives the lane that a SKU has of its own always, and whether it has one.
func (h Hotspot) LaneOf(sku string) (Lane, bool) {
	o, ok := h.Overrides[sku]
	return Lane(o), ok
}

package config

// RedisMode says what kind of Redis there is.
type RedisMode string

// The modes.
const (
	RedisStandalone RedisMode = "standalone"
	RedisSentinel   RedisMode = "sentinel"
	RedisCluster    RedisMode = "cluster"
	RedisEmbedded   RedisMode = "embedded" // miniredis inside the process, for the demo
	RedisNone       RedisMode = "none"     // the database alone
)

// Redis turns away whoever cannot win; see docs/architecture.md. All gateways of a deployment use the same one.
type Redis struct {
	// Kind of Redis. embedded runs inside the process, for one gateway alone; none works on the database alone.
	Mode RedisMode `yaml:"mode" default:"standalone" oneof:"standalone sentinel cluster embedded none"`
	// host:port of the server, or of the sentinels or some cluster nodes. Unused with embedded and none.
	Addresses []string `yaml:"addresses" default:"127.0.0.1:6379" range:"0..64"`
	// Name of the primary that the sentinels watch. With sentinel only.
	MasterName string `yaml:"master_name" range:"0..128"`
	// ACL user of the sentinels themselves. Empty: the default user. With sentinel only.
	SentinelUsername string `yaml:"sentinel_username" range:"0..256"`
	// Password of that user. Empty: none is sent. With sentinel only.
	SentinelPassword Secret `yaml:"sentinel_password" range:"0..4096"`
	// ACL user. Empty: the default user.
	Username string `yaml:"username" range:"0..256"`
	// Password of the user. Empty: none is sent.
	Password Secret `yaml:"password" range:"0..4096"`
	TLS      TLS    `yaml:"tls"`
	// Connections per node.
	PoolSize int `yaml:"pool_size" default:"32" range:"1..10000"`
	// Bound of one call. Past it the answer is unknown and the request goes on by its id.
	Timeout Duration `yaml:"timeout" default:"50ms" range:"1ms..5s"`
	// First part of every key. Fixed for the life of a deployment.
	Prefix string `yaml:"prefix" default:"stockgate" range:"1..32"`
	// Number of groups that SKUs are divided into. Fixed for the life of a deployment.
	Partitions int `yaml:"partitions" default:"64" range:"1..16384"`
	// Start although the server's maxmemory policy may evict keys. Evicted keys cost speed and may cost eventual SKUs their sales.
	AllowEviction bool `yaml:"allow_eviction" default:"false"`
	// Notice lost writes by the server's run id. Only for servers that refuse INFO in scripts set it to false; eventual SKUs are then refused.
	PinRunID bool `yaml:"pin_run_id" default:"true"`
	// Requests, and likewise closes, of one partition that may wait for a call; more requests get 503 QUEUE_FULL.
	PendingMax int `yaml:"pending_max" default:"8192" range:"1..1048576"`
	// Loads of missing SKUs from the database, per replica. A SKU that is not loaded yet waits or gets 503 NOT_LOADED.
	Loads Rate `yaml:"loads" default:"500/s" range:"1/s..100000/s"`
}

// TLS of a connection to a server.
type TLS struct {
	// Speak TLS.
	Enabled bool `yaml:"enabled" default:"false"`
	// File of the authorities that may have signed the server's certificate. Empty: those of the system.
	CA string `yaml:"ca" range:"0..4096"`
	// File of the client certificate. Empty: none is shown.
	Cert string `yaml:"cert" range:"0..4096"`
	// File of the client certificate's key.
	Key string `yaml:"key" range:"0..4096"`
}

// Breaker stands around Redis. It opens after a row of failures, or when too many of the recent calls failed.
type Breaker struct {
	// Failures in a row that open it.
	Failures int `yaml:"failures" default:"5" range:"1..1000"`
	// Share of failed calls in the window that opens it.
	Ratio float64 `yaml:"ratio" default:"0.5" range:"0.01..1"`
	// Calls there must be in the window before the ratio counts.
	Requests int `yaml:"requests" default:"20" range:"1..1000000"`
	// Time over which the ratio is taken.
	Window Duration `yaml:"window" default:"10s" range:"1s..10m"`
	// How long it stays open at first; then Redis is probed, and each failure doubles the time, with jitter.
	Open Duration `yaml:"open" default:"1s" range:"100ms..10m"`
	// Longest it stays open between two probes.
	OpenMax Duration `yaml:"open_max" default:"30s" range:"100ms..10m"`
}

// Fallback bounds the work that relies on the database alone, when Redis is out. Rates are for the fleet.
type Fallback struct {
	// Transactions of database-only work, all replicas together.
	Transactions Rate `yaml:"transactions" default:"200/s" range:"1/s..1000000/s"`
	// Order lines of database-only work, all replicas together.
	Lines Rate  `yaml:"lines" default:"20000/s" range:"1/s..100000000/s"`
	Queue Queue `yaml:"queue"`
}

// Queue bounds who waits for the database, per replica.
type Queue struct {
	// Requests that may wait in all; more get 503 QUEUE_FULL.
	Total int `yaml:"total" default:"20000" range:"1..1000000"`
	// Requests that may wait for one SKU; more get 503 QUEUE_FULL.
	PerSKU int `yaml:"per_sku" default:"5000" range:"1..1000000"`
	// Longest wait for a transaction to begin; then 503 QUEUE_TIMEOUT. One that has begun may take 4s more.
	MaxWait Duration `yaml:"max_wait" default:"2s" range:"1ms..60s"`
}

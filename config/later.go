package config

// Reconcile compares Redis, database and the shop's own orders. It is not built yet.
type Reconcile struct {
	// How often.
	Every Duration `yaml:"every" default:"10m" range:"10s..7d"`
	// How often while an activity runs. Not above every.
	DuringActivity Duration     `yaml:"during_activity" default:"1m" range:"10s..7d"`
	Orders         OrdersSource `yaml:"orders"`
	Repair         Repair       `yaml:"repair"`
}

// OrdersSource is where the shop's own orders are read: by SQL, or over HTTP.
type OrdersSource struct {
	// Database driver of sql. Empty: not by SQL.
	Driver string `yaml:"driver" oneof:"postgres sqlite mysql"`
	// Where that database is. It is never printed.
	DSN Secret `yaml:"dsn" range:"0..4096"`
	// Query with the columns sku, qty, user, reservation, status and created_at.
	SQL string `yaml:"sql" range:"0..16384"`
	// Endpoint that lists orders. Empty: not over HTTP. It is never printed.
	URL Secret `yaml:"url" range:"0..2048"`
	// Condition added to the query.
	Where string `yaml:"where" range:"0..4096"`
}

// Repair says which differences are mended without being asked.
type Repair struct {
	// Redis differs from the database.
	Redis string `yaml:"redis" default:"auto" oneof:"auto manual"`
	// Reservation without an order.
	Leak string `yaml:"leak" default:"manual" oneof:"auto manual"`
	// Refunded or cancelled order whose units did not come back.
	Refund string `yaml:"refund" default:"manual" oneof:"auto manual"`
	// More orders than stock.
	Oversell string `yaml:"oversell" default:"manual" oneof:"auto manual"`
	// Two orders for one reservation.
	Duplicate string `yaml:"duplicate" default:"manual" oneof:"auto manual"`
	// Order forwarded ahead for which nothing was left to deduct: it is made good if units come, else void by the upstream's void. manual:
	// it is not made void before an operator says so.
	Surplus string `yaml:"surplus" default:"auto" oneof:"auto manual"`
}

// Events leave the ledger at least once, in order per SKU.
type Events struct {
	Webhook     Webhook     `yaml:"webhook"`
	RedisStream RedisStream `yaml:"redis_stream"`
	NATS        NATS        `yaml:"nats"`
}

// Webhook takes events over HTTP, signed.
type Webhook struct {
	// Where events are posted. Empty: off. It is never printed, for it often holds a token.
	URL Secret `yaml:"url" range:"0..2048"`
	// Key that signs them. At least 16 bytes.
	Secret Secret `yaml:"secret" range:"0|16..4096"`
}

// RedisStream takes events in Redis.
type RedisStream struct {
	// Name of the stream. Empty: off.
	Name string `yaml:"name" range:"0..256"`
}

// NATS takes events in JetStream.
type NATS struct {
	// Server. Empty: off. It is never printed, for it may hold a password.
	URL Secret `yaml:"url" range:"0..2048"`
	// Subject of the events.
	Subject string `yaml:"subject" range:"0..256"`
}

// Retention says how long finished things are kept.
type Retention struct {
	// Reservations that have ended. Longer than answers.keep and hold_max.
	Reservations Duration `yaml:"reservations" default:"90d" range:"1h..3650d"`
	// Ledger rows. Not below reservations.
	Ledger Duration `yaml:"ledger" default:"400d" range:"1h..3650d"`
}

package config

// Driver names a kind of database.
type Driver string

// The drivers.
const (
	DriverPostgres Driver = "postgres"
	DriverSQLite   Driver = "sqlite"
	DriverMySQL    Driver = "mysql" // later: see Refusals
)

// Database is the truth, the last wall and the ledger; see docs/architecture.md. MySQL is not supported.
type Database struct {
	// Kind of database. sqlite serves one process; mysql is not supported: serve refuses it.
	Driver Driver `yaml:"driver" default:"postgres" oneof:"postgres sqlite mysql"`
	// Where it is: a postgres:// URL or key=value pairs, or a file name for sqlite. It is never printed.
	DSN Secret `yaml:"dsn" default:"postgres://stockgate@127.0.0.1:5432/shop?sslmode=disable" range:"1..4096"`
	// Connections of this replica. Replicas times this must stay below what the server allows.
	MaxConnections int `yaml:"max_connections" default:"8" range:"1..1000"`
	// Create or upgrade stockgate's own tables on start.
	Migrate bool   `yaml:"migrate" default:"true"`
	Stock   Stock  `yaml:"stock"`
	Commit  Commit `yaml:"commit"`
}

// Stock is the table that holds what may be sold; it can be the shop's own.
type Stock struct {
	// Table, as name or schema.name; quoted as it stands.
	Table string `yaml:"table" default:"stockgate.stock" range:"1..127"`
	// Its column of SKUs.
	SKU string `yaml:"sku" default:"sku" range:"1..63"`
	// Its column of units that may be sold.
	Available string `yaml:"available" default:"available" range:"1..63"`
	// The shop only adds to the column or subtracts from it, and never overwrites it with a number read before. Eventual SKUs need this.
	RelativeWrites bool `yaml:"relative_writes" default:"true"`
}

// Commit bounds the group commit. Rates are for the fleet; settles of forwarded orders are never limited.
type Commit struct {
	// Most reservations that one transaction settles.
	Batch int `yaml:"batch" default:"256" range:"1..4096"`
	// Transactions at a time, per replica. Not more than max_connections.
	Workers int `yaml:"workers" default:"2" range:"1..256"`
	// How long a transaction that is not full waits for more. 0: it starts at once.
	Linger Duration `yaml:"linger" default:"0s" range:"0s..1s"`
	// Transactions, all replicas together.
	Transactions Rate `yaml:"transactions" default:"2000/s" range:"1/s..1000000/s"`
	// Order lines, all replicas together.
	Lines Rate `yaml:"lines" default:"100000/s" range:"1/s..100000000/s"`
}

package control

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/admission"
	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

// Deducter makes changes; ledger.Deducter is one. Do blocks until op has come back or ctx ends; after stock.ErrUnknown the op still belongs to the
// deducter and is not looked at again.
type Deducter interface {
	Do(ctx context.Context, op *stock.Op) error
}

// Store reads the database; ledger.Store is one.
type Store interface {
	// Stock tells of one SKU; false: the stock table does not have it.
	Stock(ctx context.Context, sku string) (ledger.SKUInfo, bool, error)
	// ListStock is at most limit SKUs whose bytes come after after.
	ListStock(ctx context.Context, after string, limit int) ([]ledger.SKUInfo, error)
	// Find is the rows of those ids that have one.
	Find(ctx context.Context, ids []stock.ID) (map[stock.ID]*stock.Row, error)
}

// Cache reads Redis; luascripts.Client is one.
type Cache interface {
	// Registers is what Redis holds of the SKUs, in no order; what it does not hold may be missing.
	Registers(ctx context.Context, skus []string) ([]stock.Registers, error)
}

// Records finds reservations, reads the ledger and imports stock; ledger.Store is one.
type Records interface {
	// Search is at most limit reservations that fit, beginning after the cursor; the cursor that comes back continues.
	Search(ctx context.Context, by stock.Search, after stock.Cursor, limit int) ([]*stock.Row, stock.Cursor, error)
	// OrderRefs is the reservations that hold units for orders, held or confirmed, by order reference.
	OrderRefs(ctx context.Context, refs []string) (map[string][]stock.ID, error)
	// Due is at most limit held reservations of those routes that are unknown or whose time is over, by (CreatedAt, ID), beginning
	// after the row named.
	Due(ctx context.Context, routes []string, after stock.DueRow, limit int) ([]stock.DueRow, error)
	// History is at most limit rows of a SKU's or a reservation's ledger that are older than after, newest first; the zero one is
	// younger than all. Of after its At, SKU and Seq count.
	History(ctx context.Context, of stock.AuditOf, after stock.AuditRow, limit int) ([]stock.AuditRow, error)
	// ImportStock makes the unsold totals of many SKUs what rows say, all or none, in one transaction, once per op id, and gives their
	// facts. Rows that cannot be written are a *ledger.ImportError. progress is called as rows are written, from the calling goroutine.
	ImportStock(ctx context.Context, rows []stock.Line, opID, actor, reason string, progress func(done int)) ([]stock.Fact, error)
}

// Repairs knows surplus orders and silent replicas; ledger.Store is one.
type Repairs interface {
	// Doubts is the silent replicas that may have sold units of a grant.
	Doubts(ctx context.Context) ([]stock.Doubt, error)
	// ClearDoubts ends the doubts about a partition, or with ledger.AllPartitions all, and gives them.
	ClearDoubts(ctx context.Context, p int) ([]stock.Doubt, error)
	// Compensation is one repair, or ledger.ErrNoCompensation.
	Compensation(ctx context.Context, id string) (stock.Compensation, error)
	// ListCompensations is at most limit repairs of a state ("": of any) whose ids come after after.
	ListCompensations(ctx context.Context, state stock.CompensationState, after string, limit int) ([]stock.Compensation, error)
	// NoteCompensation writes where a repair that is not done stands, and that its time comes again after that long.
	NoteCompensation(ctx context.Context, id string, state stock.CompensationState, attempts int64, after time.Duration, detail string) error
}

// Open knows what is pre-deducted in Redis and not settled yet; admission.Admitter is one.
type Open interface {
	// SettleOpen settles the reservation if it is known in Redis's open only, and reports whether it has a row now. An error says that
	// Redis cannot be asked, or that the database cannot settle it, and that it may be there all the same.
	SettleOpen(ctx context.Context, id stock.ID) (settled bool, err error)
}

// Admission decides about a direct reservation; admission.Admitter is one.
type Admission interface {
	// Admit decides; a Pass must be booked.
	Admit(ctx context.Context, w *admission.Wish) admission.Decision
	// Recall answers a wish that the rules do not allow if it was admitted before, never with a Pass; false: it was not.
	Recall(ctx context.Context, w *admission.Wish) (admission.Decision, bool)
	// Book writes down what became of a Pass. It takes the outcome's answer over.
	Book(ctx context.Context, p *admission.Pass, o admission.Outcome)
}

// Sale is what the rules say beside what admission asks them. An activity is named by a reservation's terms; "" is none.
type Sale interface {
	// LateConfirm reports whether a payment that comes after the release takes the units again.
	LateConfirm(activity, sku string) (retake bool)
	// HoldMax is the longest hold, and the key of that bound in the configuration.
	HoldMax(activity, sku string) (longest time.Duration, key string)
	// Hold is how long a reservation without an activity is held.
	Hold(sku string) time.Duration
	// MaxQty is the most units of a SKU that one reservation may have, and the key of that bound.
	MaxQty(sku string) (most int64, key string)
}

// Deps is what the server is wired to. All is needed but what says otherwise.
type Deps struct {
	Deducter  Deducter
	Store     Store
	Records   Records
	Repairs   Repairs
	Admission Admission
	Sale      Sale
	Open      Open  // nil: nothing is known in Redis alone
	Cache     Cache // nil: redis.mode none
	// Candidates is the reservation ids that a request id may have led to: one for each guarded route and each activity that a request
	// can name, and for none. A user of "" is no user.
	Candidates func(user, request string) []stock.ID
	// Routes is the names of the routes whose reservations can be of unknown outcome.
	Routes func() []string
	// Deployment is the deployment's id. It is asked only once the replica is ready.
	Deployment func() string
	// Committed is told of every op whose transaction has committed, so that Redis and this process learn what came of it. It must
	// not block. Nil: nobody is told.
	Committed func(op *stock.Op)
	// Told is told of facts that an import has left, in pages, for Redis and this process. It must not block: what it drops, the tailer
	// sends. Nil: nobody is told.
	Told func(facts []stock.Fact)
	// Reload reads the configuration file again. An error says that it could not be tried now; a file that is at fault is none.
	Reload func(ctx context.Context) (api.Reload, error)
	// Configuration says what this replica runs by. It answers from memory, at once.
	Configuration func() api.Configuration
	// Status fills everything but the phase. It answers from memory, at once: the dashboard, ?verbose and operators rely on it
	// while Redis and the database hang.
	Status    func() api.Status
	Readiness *Readiness
	// Registry holds the metrics to show; the server's own are registered with it.
	Registry *prometheus.Registry
	// Log takes panics, socket errors and, at info, every change that was asked for. Nil: they are dropped.
	Log *zap.Logger
}

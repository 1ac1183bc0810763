package loop

import (
	"context"
	"time"

	"github.com/stockgate/stockgate/stock"
)

const (
	// OpPatience is how long an op of a job waits for its turn and for a stock row that somebody else keeps locked. One such row must not
	// keep the rest of a page: what is given up is done in a later pass, or when it is asked for.
	OpPatience = 2 * time.Second
	// opsTimeout bounds a page of ops that may have been done and are repeated.
	opsTimeout = 30 * time.Second
)

// Worker does ops; ledger.Deducter is one. DoAll returns one error per op, when all have come back.
type Worker interface {
	DoAll(ctx context.Context, ops []*stock.Op) []error
}

// DoAll has a page of a job's ops done, each within OpPatience; it sets their deadlines. What a job does afterwards, such as telling
// Redis, is not bound by the time that this takes at most.
func DoAll(ctx context.Context, worker Worker, ops []*stock.Op) []error {
	ctx, cancel := context.WithTimeout(ctx, opsTimeout)
	defer cancel()
	late := time.Now().Add(OpPatience)
	for _, op := range ops {
		op.Deadline = late
	}
	return worker.DoAll(ctx, ops)
}

package ledger

import (
	"context"

	"github.com/stockgate/stockgate/stock"
)

// Compensation is the repair of that id. An unknown id is ErrNoCompensation.
func (s *Store) Compensation(ctx context.Context, id string) (stock.Compensation, error) {
	found, err := s.compensations(ctx, `WHERE id = $1`, id)
	switch {
	case err != nil:
		return stock.Compensation{}, err
	case len(found) == 0:
		return stock.Compensation{}, notExecuted(ErrNoCompensation)
	}
	return found[0], nil
}

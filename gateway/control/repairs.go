package control

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/stockgate/stockgate/gateway/control/api"
	"github.com/stockgate/stockgate/ledger"
	"github.com/stockgate/stockgate/stock"
)

const (
	partitionMax = 1 << 16 // bound of redis.partitions
	repairIDMax  = 128
)

// listDoubts answers which silent replicas may have sold units of a grant.
func (s *Server) listDoubts(r *http.Request) (any, error) {
	if _, err := queryOf(r); err != nil {
		return nil, err
	}
	found, err := s.deps.Repairs.Doubts(r.Context())
	if err != nil {
		return nil, ofRead(err)
	}
	return viewDoubts(found), nil
}

func viewDoubts(found []stock.Doubt) api.DoubtList {
	list := api.DoubtList{Doubts: []api.Doubt{}}
	for _, d := range found {
		list.Doubts = append(list.Doubts, api.Doubt{Partition: d.P, Gateway: d.Gateway, Epoch: d.Epoch, At: d.At.UTC()})
	}
	return list
}

// clearDoubts takes an operator's word that no silent replica has sold units of a partition that the shop's orders do not show. The way
// back gives them back then.
func (s *Server) clearDoubts(r *http.Request) (any, error) {
	p, err := strconv.Atoi(r.PathValue("partition"))
	if err != nil || p < 0 || p >= partitionMax {
		return nil, badField("partition", shorten(r.PathValue("partition")), fmt.Sprintf("must be a number from 0 to %d", partitionMax-1))
	}
	return s.clear(r, p)
}

// clearAllDoubts takes the same word of all partitions: a database that was restored is doubted in each.
func (s *Server) clearAllDoubts(r *http.Request) (any, error) {
	if _, err := queryOf(r); err != nil {
		return nil, err
	}
	return s.clear(r, ledger.AllPartitions)
}

func (s *Server) clear(r *http.Request, p int) (any, error) {
	body, err := readObject(r, "reason")
	if err != nil {
		return nil, err
	}
	reason, err := body.text("reason", reasonBytesMax)
	if err != nil {
		return nil, err
	}
	cleared, err := s.deps.Repairs.ClearDoubts(r.Context(), p)
	if err != nil {
		return nil, err
	}
	// No ledger row has the reason: what goes back does so later, SKU by SKU.
	s.deps.Log.Info("doubts are cleared, what was doubtful is sold again", zap.String("actor", actorOf(r.Context())), whichOf(p),
		zap.Int("replicas", len(cleared)), zap.String("reason", reason), zap.Strings("doubts", doubtNames(cleared)))
	return viewDoubts(cleared), nil
}

// whichOf is a partition as the log names it.
func whichOf(p int) zap.Field {
	if p == ledger.AllPartitions {
		return zap.String("partition", "all")
	}
	return zap.Int("partition", p)
}

// doubtNames name doubts by partition and gateway.
func doubtNames(doubts []stock.Doubt) []string {
	names := make([]string, len(doubts))
	for i, d := range doubts {
		names[i] = fmt.Sprintf("%d of %s", d.P, d.Gateway)
	}
	return names
}

// compensationStates are what a list of repairs can be asked for.
var compensationStates = []stock.CompensationState{stock.CompensationPending, stock.CompensationProcessing, stock.CompensationDone, stock.CompensationDead}

// listCompensations answers a page of repairs, of one state or of all.
func (s *Server) listCompensations(r *http.Request) (any, error) {
	q, err := queryOf(r, "state", "after", "limit")
	if err != nil {
		return nil, err
	}
	state := stock.CompensationState(q.Get("state"))
	if q.named("state") && !slices.Contains(compensationStates, state) {
		return nil, badField("state", shorten(string(state)), "must be pending, processing, done or dead")
	}
	limit, err := q.limit()
	if err != nil {
		return nil, err
	}
	after := ""
	if q.named("after") {
		if after, err = repairID("after", q.Get("after")); err != nil {
			return nil, err
		}
	}
	found, err := s.deps.Repairs.ListCompensations(r.Context(), state, after, limit)
	if err != nil {
		return nil, ofRead(err)
	}
	list := api.CompensationList{Compensations: make([]api.Compensation, len(found))}
	for i := range found {
		list.Compensations[i] = viewCompensation(&found[i])
	}
	if len(found) == limit {
		list.Next = list.Compensations[limit-1].ID
	}
	return list, nil
}

// retryCompensation has a repair looked at now, with all its calls before it.
func (s *Server) retryCompensation(r *http.Request) (any, error) {
	id, err := repairID("id", r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	body, err := readObject(r, "make", "reason")
	if err != nil {
		return nil, err
	}
	makes, err := makesOf(body)
	if err != nil {
		return nil, err
	}
	reason, err := body.text("reason", reasonBytesMax)
	if err != nil {
		return nil, err
	}
	was, err := s.deps.Repairs.Compensation(r.Context(), id)
	if err != nil {
		return nil, ofRepair(err, id)
	}
	detail := retryDetail(actorOf(r.Context()), reason)
	if err := s.deps.Repairs.NoteCompensation(r.Context(), id, retryState(was.State, makes), 0, 0, detail); err != nil {
		return nil, ofRetry(err, id)
	}
	now, err := s.deps.Repairs.Compensation(r.Context(), id)
	if err != nil {
		return nil, ofRepair(err, id)
	}
	return viewCompensation(&now), nil
}

func makesOf(body object) (string, error) {
	makes, err := body.text("make", reasonBytesMax)
	if err == nil && makes != "" && makes != api.MakeGood && makes != api.MakeVoid {
		return "", badField("make", shorten(makes), "must be good or void")
	}
	return makes, err
}

// retryState is where a retry begins. Processing says that the order may be void already, so that no units are taken for it.
func retryState(was stock.CompensationState, makes string) stock.CompensationState {
	switch {
	case was == stock.CompensationDone:
		return was
	case makes == api.MakeGood:
		return stock.CompensationPending
	case makes == api.MakeVoid, was == stock.CompensationDead:
		return stock.CompensationProcessing
	}
	return was
}

func retryDetail(actor, reason string) string {
	detail := "retried by " + actor
	if reason != "" {
		detail += ": " + reason
	}
	return detail
}

func ofRepair(err error, id string) error {
	if errors.Is(err, ledger.ErrNoCompensation) {
		return ofRetry(err, id)
	}
	return ofRead(err)
}

func ofRetry(err error, id string) error {
	if errors.Is(err, ledger.ErrNoCompensation) {
		return refuse(stock.CodeUnknownReservation, "there is no compensation %s", viewRepairID(id))
	}
	return err
}

func viewCompensation(c *stock.Compensation) api.Compensation {
	return api.Compensation{ID: viewRepairID(c.ID), Kind: c.Kind, Reservation: c.Reservation.String(), State: string(c.State),
		Attempts: c.Attempts, NextAt: c.NextAt.UTC(), Detail: c.Detail, CreatedAt: c.CreatedAt.UTC()}
}

// viewRepairID writes an id so that it is one part of a path.
func viewRepairID(id string) string { return strings.Replace(id, "/", ".", 1) }

// repairID reads what viewRepairID wrote.
func repairID(field, text string) (string, error) {
	kind, of, found := strings.Cut(text, ".")
	if !found || kind == "" || of == "" || len(text) > repairIDMax || !visibleASCII(text) {
		return "", badField(field, shorten(text), "must be the id of a compensation, such as surplus.7dbfd4965e5ef1d51e52cfdb5567578c")
	}
	return kind + "/" + of, nil
}

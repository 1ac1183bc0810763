package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// line is a quantity of one SKU in an order.
type line struct {
	SKU      string `json:"sku"`
	Qty      int64  `json:"qty"`
	Refunded int64  `json:"refunded,omitempty"` // of Qty
}

// The states of an order. A cancelled one stays cancelled.
const (
	open      = "open"
	paid      = "paid"
	cancelled = "cancelled"
)

// order is one row.
type order struct {
	ID          int64  `json:"order,string"`
	Reservation string `json:"reservation"`
	User        string `json:"user,omitempty"`
	Lines       []line `json:"lines"`
	State       string `json:"state"`
	RefundDue   bool   `json:"refund_due,omitempty"` // paid, and there are no units for it

	closes time.Time // from then on it is not paid any more
}

// The UNIQUE is what keeps one order per reservation, whatever is sent twice.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
	id          INTEGER PRIMARY KEY,
	reservation TEXT NOT NULL UNIQUE,
	user        TEXT NOT NULL,
	lines       TEXT NOT NULL, -- JSON
	state       TEXT NOT NULL CHECK (state IN ('open', 'paid', 'cancelled')),
	refund_due  INTEGER NOT NULL DEFAULT 0,
	closes      INTEGER NOT NULL -- Unix ms
);
CREATE TABLE IF NOT EXISTS refunds (order_id INTEGER, op TEXT, lines TEXT NOT NULL, PRIMARY KEY (order_id, op));
CREATE TABLE IF NOT EXISTS outbox (
	id       INTEGER PRIMARY KEY,
	order_id INTEGER NOT NULL,
	call     TEXT NOT NULL, -- confirm | release
	body     TEXT NOT NULL,
	problem  TEXT NOT NULL DEFAULT '' -- why it is given up
);`

var errNoOrder = errors.New("no such order")

// store keeps the orders. One connection: whoever changes something has the file for himself.
type store struct{ db *sql.DB }

func openStore(file string) (*store, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &store{db}, nil
}

// transaction runs do and commits what it did, or nothing.
func (s *store) transaction(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// find reads one order: where is "id = ?" or "reservation = ?".
func find(ctx context.Context, tx *sql.Tx, where string, value any) (*order, error) {
	var o order
	var lines string
	var closes int64
	err := tx.QueryRowContext(ctx, `SELECT id, reservation, user, lines, state, refund_due, closes FROM orders WHERE `+where, value).
		Scan(&o.ID, &o.Reservation, &o.User, &lines, &o.State, &o.RefundDue, &closes)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errNoOrder
	}
	if err != nil {
		return nil, err
	}
	o.closes = time.UnixMilli(closes)
	return &o, json.Unmarshal([]byte(lines), &o.Lines)
}

// add writes a new order and numbers it.
func (o *order) add(ctx context.Context, tx *sql.Tx) error {
	lines, err := json.Marshal(o.Lines)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, `INSERT INTO orders (reservation, user, lines, state, closes) VALUES (?, ?, ?, ?, ?)`,
		o.Reservation, o.User, string(lines), o.State, o.closes.UnixMilli())
	if err != nil {
		return err
	}
	o.ID, err = result.LastInsertId()
	return err
}

// save writes what can change.
func (o *order) save(ctx context.Context, tx *sql.Tx) error {
	lines, err := json.Marshal(o.Lines)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE orders SET lines = ?, state = ?, refund_due = ? WHERE id = ?`, string(lines), o.State, o.RefundDue, o.ID)
	return err
}

// change makes one step of an order's life, with what stockgate is to be told about it: both or neither. What nobody paid in time is
// closed before anything else is done with it, so that a payment and an end never both happen.
func (s *store) change(ctx context.Context, where string, value any, step func(tx *sql.Tx, o *order) error) (o *order, err error) {
	err = s.transaction(ctx, func(tx *sql.Tx) error {
		if o, err = find(ctx, tx, where, value); err != nil {
			return err
		}
		if o.State == open && !time.Now().Before(o.closes) {
			o.State = cancelled
			if err := o.save(ctx, tx); err != nil {
				return err
			}
		}
		if err := step(tx, o); err != nil {
			return err
		}
		return o.save(ctx, tx)
	})
	return o, err
}

// tell notes a call of the control API; the outbox makes it after the commit.
func (o *order) tell(ctx context.Context, tx *sql.Tx, call string, body map[string]any) error {
	body["order_ref"] = fmt.Sprint(o.ID)
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox (order_id, call, body) VALUES (?, ?, ?)`, o.ID, call, string(text))
	return err
}

-- +goose Up
-- What the whole life of a reservation needs: the same columns as for PostgreSQL.

-- reservation.counts_open: it counts among the reservations that its user holds (user_take under activity '' and sku '').
-- reservation.open_limit: the most that the user may hold at a time, as it was when the units were taken; 0 = no limit.
-- reservation.paid: this try's order was confirmed once.
ALTER TABLE stockgate_reservation ADD COLUMN counts_open INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_reservation ADD COLUMN open_limit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_reservation ADD COLUMN paid INTEGER NOT NULL DEFAULT 0;

-- reservation_line.activity, user_limit: the sale's terms when the units were taken; 0 = no limit.
-- reservation_line.counted: what is taken of the line counts in user_take, under this activity.
-- reservation_line.parted: of released, what was given back by lines: a late confirm does not take it again.
ALTER TABLE stockgate_reservation_line ADD COLUMN activity TEXT NOT NULL DEFAULT '';
ALTER TABLE stockgate_reservation_line ADD COLUMN user_limit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_reservation_line ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_reservation_line ADD COLUMN parted INTEGER NOT NULL DEFAULT 0 CHECK (parted >= 0);

UPDATE stockgate_reservation SET paid = 1
WHERE state = 'confirmed' OR state = 'released' AND EXISTS
    (SELECT 1 FROM stockgate_ledger l WHERE l.reservation_id = stockgate_reservation.id AND l.try = stockgate_reservation.try
        AND l.kind = 'confirm');

CREATE INDEX stockgate_reservation_user ON stockgate_reservation (user_id, created_at, id) WHERE user_id <> '';
CREATE INDEX stockgate_reservation_order ON stockgate_reservation (order_ref) WHERE order_ref <> '';

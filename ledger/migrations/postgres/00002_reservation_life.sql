-- +goose Up
-- What the whole life of a reservation needs. Replicas of the version before go on writing meanwhile: every new column has a default that
-- is right for what they write.

-- reservation.counts_open: it counts among the reservations that its user holds (user_take under activity '' and sku '').
-- reservation.open_limit: the most that the user may hold at a time, as it was when the units were taken; 0 = no limit.
-- reservation.paid: this try's order was confirmed once.
ALTER TABLE stockgate.reservation
    ADD COLUMN counts_open boolean NOT NULL DEFAULT false,
    ADD COLUMN open_limit  bigint  NOT NULL DEFAULT 0,
    ADD COLUMN paid        boolean NOT NULL DEFAULT false;

-- reservation_line.activity, user_limit: the sale's terms when the units were taken; 0 = no limit.
-- reservation_line.counted: what is taken of the line counts in user_take, under this activity.
-- reservation_line.parted: of released, what was given back by lines: a late confirm does not take it again.
ALTER TABLE stockgate.reservation_line
    ADD COLUMN activity   text    NOT NULL DEFAULT '',
    ADD COLUMN user_limit bigint  NOT NULL DEFAULT 0,
    ADD COLUMN counted    boolean NOT NULL DEFAULT false,
    ADD COLUMN parted     bigint  NOT NULL DEFAULT 0 CHECK (parted >= 0);

UPDATE stockgate.reservation r SET paid = true
WHERE state = 'confirmed' OR state = 'released' AND EXISTS
    (SELECT 1 FROM stockgate.ledger l WHERE l.reservation_id = r.id AND l.try = r.try AND l.kind = 'confirm');

CREATE INDEX reservation_user ON stockgate.reservation (user_id, created_at, id) WHERE user_id <> '';
CREATE INDEX reservation_order ON stockgate.reservation (order_ref) WHERE order_ref <> '';

-- +goose Up
-- Everything that DESIGN.md section 7 names, also what only later releases fill, so that later work adds and rewrites nothing.
-- The same tables as for PostgreSQL, with a prefix in place of a schema. Times are microseconds since 1970, ids 32 hex digits,
-- truths 0 or 1. SQLite compares text byte for byte. STRICT keeps a column to its type. WITHOUT ROWID saves the
-- second tree of a table that is found by its key. Columns of unique indexes are never NULL.

-- stock: units anyone may be given. Used unless the configuration names a table of the shop.
CREATE TABLE stockgate_stock (
    sku       TEXT PRIMARY KEY,
    available INTEGER NOT NULL CHECK (available >= 0 AND available <= 9007199254740992)
) STRICT, WITHOUT ROWID;

-- sku_state: what stockgate knows of a SKU besides. last_available is stock.available as stockgate last left it. The four sums
-- (stock put in; held, confirmed, compensating units) are kept in the same transactions as what they add up.
CREATE TABLE stockgate_sku_state (
    sku            TEXT PRIMARY KEY,
    granted        INTEGER NOT NULL CHECK (granted >= 0),
    ver            INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    last_available INTEGER NOT NULL,
    paused         INTEGER NOT NULL,
    stock_in       INTEGER NOT NULL,
    held           INTEGER NOT NULL CHECK (held >= 0),
    confirmed      INTEGER NOT NULL CHECK (confirmed >= 0),
    compensating   INTEGER NOT NULL CHECK (compensating >= 0),
    updated_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stockgate_sku_state_updated ON stockgate_sku_state (updated_at);

CREATE TABLE stockgate_partition_state (
    p      INTEGER PRIMARY KEY,
    epoch  INTEGER NOT NULL,
    run_id TEXT NOT NULL,
    state  TEXT NOT NULL CHECK (state IN ('open', 'draining', 'drained'))
) STRICT;

CREATE TABLE stockgate_gateway (
    id       TEXT PRIMARY KEY,
    seen_at  INTEGER NOT NULL,
    redis_ok INTEGER NOT NULL
) STRICT;

CREATE TABLE stockgate_drained (
    gateway TEXT NOT NULL,
    p       INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    PRIMARY KEY (gateway, p, epoch)
) STRICT, WITHOUT ROWID;

-- reservation: try and fingerprint are 64 bits, stored as the signed number of the same bits.
CREATE TABLE stockgate_reservation (
    id          TEXT PRIMARY KEY,
    try         INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    activity    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    route       TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('held', 'confirmed', 'released', 'void', 'surplus', 'compensating')),
    outcome     TEXT NOT NULL CHECK (outcome IN ('unknown', 'accepted', 'rejected')),
    owner       TEXT NOT NULL,
    keyed       INTEGER NOT NULL,
    hold_us     INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    order_ref   TEXT NOT NULL,
    transition  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    forward_by  INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX stockgate_reservation_updated ON stockgate_reservation (updated_at);
CREATE INDEX stockgate_reservation_expiry ON stockgate_reservation (expires_at) WHERE state = 'held' AND outcome = 'accepted';
CREATE INDEX stockgate_reservation_unknown ON stockgate_reservation (created_at) WHERE state = 'held' AND outcome = 'unknown';

CREATE TABLE stockgate_reservation_line (
    reservation_id TEXT NOT NULL,
    sku            TEXT NOT NULL,
    qty            INTEGER NOT NULL CHECK (qty >= 1),
    released       INTEGER NOT NULL CHECK (released >= 0 AND released <= qty),
    PRIMARY KEY (reservation_id, sku)
) STRICT, WITHOUT ROWID;

CREATE TABLE stockgate_user_take (
    activity TEXT NOT NULL,
    sku      TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    qty      INTEGER NOT NULL CHECK (qty >= 0),
    PRIMARY KEY (activity, sku, user_id)
) STRICT, WITHOUT ROWID;

-- answer: headers is the block as on the wire, "Name: value\r\n" a line, because values need not be UTF-8.
CREATE TABLE stockgate_answer (
    reservation_id TEXT PRIMARY KEY,
    try            INTEGER NOT NULL,
    status         INTEGER NOT NULL,
    headers        BLOB NOT NULL,
    body           BLOB NOT NULL,
    at             INTEGER NOT NULL
) STRICT;
CREATE INDEX stockgate_answer_at ON stockgate_answer (at);

-- ledger: append-only. before and after count unsold units: available + granted.
CREATE TABLE stockgate_ledger (
    sku            TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    reservation_id TEXT NOT NULL,
    try            INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    op             TEXT NOT NULL,
    delta          INTEGER NOT NULL,
    "before"       INTEGER NOT NULL,
    "after"        INTEGER NOT NULL,
    at             INTEGER NOT NULL,
    reason         TEXT NOT NULL,
    actor          TEXT NOT NULL,
    PRIMARY KEY (sku, seq),
    CONSTRAINT ledger_once UNIQUE (reservation_id, try, sku, kind, op),
    CONSTRAINT ledger_adds_up CHECK ("after" = "before" + delta)
) STRICT, WITHOUT ROWID;

CREATE TABLE stockgate_lease (
    name   TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    token  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) STRICT;

-- admission: what admission depends on (consistency, limits, windows, holds), one row a version.
CREATE TABLE stockgate_admission (
    version INTEGER PRIMARY KEY,
    content TEXT NOT NULL
) STRICT;

-- compensation: one repair each.
CREATE TABLE stockgate_compensation (
    id             TEXT PRIMARY KEY,
    kind           TEXT NOT NULL,
    reservation_id TEXT NOT NULL,
    sku            TEXT NOT NULL,
    qty            INTEGER NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('pending', 'processing', 'done', 'dead')),
    attempts       INTEGER NOT NULL,
    next_at        INTEGER NOT NULL,
    detail         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;

-- meta: one row, written by the first gateway that prepares the database.
CREATE TABLE stockgate_meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    deployment TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    prefix     TEXT NOT NULL
) STRICT;

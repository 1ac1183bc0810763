-- +goose Up
-- Everything that DESIGN.md section 7 names, also what only later releases fill, so that later work adds and rewrites nothing.
-- SKUs are compared byte for byte: COLLATE "C". Columns of unique indexes are never NULL.

-- stock: units anyone may be given. Used unless the configuration names a table of the shop.
-- Rows are rewritten all the time: half-empty pages keep the new versions on the page, without touching the index.
CREATE TABLE stockgate.stock (
    sku       text COLLATE "C" PRIMARY KEY,
    available bigint NOT NULL CHECK (available >= 0 AND available <= 9007199254740992)
) WITH (fillfactor = 50);

-- sku_state: what stockgate knows of a SKU besides. last_available is stock.available as stockgate last left it. The four sums
-- (stock put in; held, confirmed, compensating units) are kept in the same transactions as what they add up.
CREATE TABLE stockgate.sku_state (
    sku            text COLLATE "C" PRIMARY KEY,
    granted        bigint NOT NULL CHECK (granted >= 0),
    ver            bigint NOT NULL,
    seq            bigint NOT NULL,
    last_available bigint NOT NULL,
    paused         boolean NOT NULL,
    stock_in       bigint NOT NULL,
    held           bigint NOT NULL CHECK (held >= 0),
    confirmed      bigint NOT NULL CHECK (confirmed >= 0),
    compensating   bigint NOT NULL CHECK (compensating >= 0),
    updated_at     timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX sku_state_updated ON stockgate.sku_state (updated_at);

CREATE TABLE stockgate.partition_state (
    p      integer PRIMARY KEY,
    epoch  bigint NOT NULL,
    run_id text NOT NULL,
    state  text NOT NULL CHECK (state IN ('open', 'draining', 'drained'))
);

CREATE TABLE stockgate.gateway (
    id       text PRIMARY KEY,
    seen_at  timestamptz NOT NULL,
    redis_ok boolean NOT NULL
);

CREATE TABLE stockgate.drained (
    gateway text NOT NULL,
    p       integer NOT NULL,
    epoch   bigint NOT NULL,
    PRIMARY KEY (gateway, p, epoch)
);

-- reservation: try and fingerprint are 64 bits, stored as the signed number of the same bits.
CREATE TABLE stockgate.reservation (
    id          uuid PRIMARY KEY,
    try         bigint NOT NULL,
    fingerprint bigint NOT NULL,
    activity    text NOT NULL,
    user_id     text NOT NULL,
    route       text NOT NULL,
    state       text NOT NULL CHECK (state IN ('held', 'confirmed', 'released', 'void', 'surplus', 'compensating')),
    outcome     text NOT NULL CHECK (outcome IN ('unknown', 'accepted', 'rejected')),
    owner       text NOT NULL,
    keyed       boolean NOT NULL,
    hold_us     bigint NOT NULL,
    reason      text NOT NULL,
    order_ref   text NOT NULL,
    transition  bigint NOT NULL,
    expires_at  timestamptz NOT NULL,
    forward_by  timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL
);
CREATE INDEX reservation_updated ON stockgate.reservation (updated_at); -- a batch has one time: its rows share an entry
CREATE INDEX reservation_expiry ON stockgate.reservation (expires_at) WHERE state = 'held' AND outcome = 'accepted';
CREATE INDEX reservation_unknown ON stockgate.reservation (created_at) WHERE state = 'held' AND outcome = 'unknown';

CREATE TABLE stockgate.reservation_line (
    reservation_id uuid NOT NULL,
    sku            text COLLATE "C" NOT NULL,
    qty            bigint NOT NULL CHECK (qty >= 1),
    released       bigint NOT NULL CHECK (released >= 0 AND released <= qty),
    PRIMARY KEY (reservation_id, sku)
);

CREATE TABLE stockgate.user_take (
    activity text NOT NULL,
    sku      text COLLATE "C" NOT NULL,
    user_id  text NOT NULL,
    qty      bigint NOT NULL CHECK (qty >= 0),
    PRIMARY KEY (activity, sku, user_id)
);

-- answer: headers is the block as on the wire, "Name: value\r\n" a line, because values need not be UTF-8.
CREATE TABLE stockgate.answer (
    reservation_id uuid PRIMARY KEY,
    try            bigint NOT NULL,
    status         integer NOT NULL,
    headers        bytea NOT NULL,
    body           bytea NOT NULL,
    at             timestamptz NOT NULL
);
CREATE INDEX answer_at ON stockgate.answer (at);

-- ledger: append-only. before and after count unsold units: available + granted.
CREATE TABLE stockgate.ledger (
    sku            text COLLATE "C" NOT NULL,
    seq            bigint NOT NULL,
    reservation_id uuid NOT NULL,
    try            bigint NOT NULL,
    kind           text NOT NULL,
    op             text NOT NULL,
    delta          bigint NOT NULL,
    before         bigint NOT NULL,
    after          bigint NOT NULL,
    at             timestamptz NOT NULL,
    reason         text NOT NULL,
    actor          text NOT NULL,
    PRIMARY KEY (sku, seq),
    CONSTRAINT ledger_once UNIQUE (reservation_id, try, sku, kind, op),
    CONSTRAINT ledger_adds_up CHECK (after = before + delta)
);

CREATE TABLE stockgate.lease (
    name   text PRIMARY KEY,
    holder text NOT NULL,
    token  bigint NOT NULL,
    until  timestamptz NOT NULL
);

-- admission: what admission depends on (consistency, limits, windows, holds), one row a version.
CREATE TABLE stockgate.admission (
    version bigint PRIMARY KEY,
    content text NOT NULL
);

-- compensation: one repair each.
CREATE TABLE stockgate.compensation (
    id             text PRIMARY KEY,
    kind           text NOT NULL,
    reservation_id uuid NOT NULL,
    sku            text COLLATE "C" NOT NULL,
    qty            bigint NOT NULL,
    state          text NOT NULL CHECK (state IN ('pending', 'processing', 'done', 'dead')),
    attempts       bigint NOT NULL,
    next_at        timestamptz NOT NULL,
    detail         text NOT NULL,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);

-- meta: one row, written by the first gateway that prepares the database.
CREATE TABLE stockgate.meta (
    one        boolean PRIMARY KEY CHECK (one),
    deployment text NOT NULL,
    partitions integer NOT NULL,
    prefix     text NOT NULL
);

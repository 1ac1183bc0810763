-- +goose Up
-- What selling ahead needs: the same columns as for PostgreSQL.

-- sku_state.ahead: Redis sells the SKU from what is granted. doubtful: of granted, what a replica may have sold that fell silent before it
-- had drained. grant_ver: ver of the transaction that granted last.
ALTER TABLE stockgate_sku_state ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_sku_state ADD COLUMN doubtful INTEGER NOT NULL DEFAULT 0 CHECK (doubtful >= 0 AND doubtful <= granted);
ALTER TABLE stockgate_sku_state ADD COLUMN grant_ver INTEGER NOT NULL DEFAULT 0;
CREATE INDEX stockgate_sku_state_ahead ON stockgate_sku_state (sku) WHERE ahead;

-- partition_state.ahead: a SKU of it sells, or has sold, ahead, so it is drained before its grants are touched. drain_epoch: the epoch that
-- began the last draining.
ALTER TABLE stockgate_partition_state ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stockgate_partition_state ADD COLUMN drain_epoch INTEGER NOT NULL DEFAULT 0;

-- gateway.redis_out: the partitions whose Redis node the replica does not reach: a bit each, in hex, partition 0 first; '' = none.
ALTER TABLE stockgate_gateway ADD COLUMN redis_out TEXT NOT NULL DEFAULT '';

-- doubtful: replicas that fell silent before they had drained, until they drain under that epoch or a later one, or somebody clears them.
CREATE TABLE stockgate_doubtful (
    gateway TEXT    NOT NULL,
    p       INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (gateway, p)
) STRICT, WITHOUT ROWID;

-- Repairs that are to be tried next.
CREATE INDEX stockgate_compensation_next ON stockgate_compensation (next_at) WHERE state IN ('pending', 'processing');

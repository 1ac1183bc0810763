-- +goose Up
-- What selling ahead needs. Replicas of the version before go on writing meanwhile: every new column has a default that is right for what
-- they write, and none of them grants anything.

-- sku_state.ahead: Redis sells the SKU from what is granted. doubtful: of granted, what a replica may have sold that fell silent before it
-- had drained. grant_ver: ver of the transaction that granted last.
ALTER TABLE stockgate.sku_state
    ADD COLUMN ahead     boolean NOT NULL DEFAULT false,
    ADD COLUMN doubtful  bigint  NOT NULL DEFAULT 0 CHECK (doubtful >= 0 AND doubtful <= granted),
    ADD COLUMN grant_ver bigint  NOT NULL DEFAULT 0;
CREATE INDEX sku_state_ahead ON stockgate.sku_state (sku) WHERE ahead;

-- partition_state.ahead: a SKU of it sells, or has sold, ahead, so it is drained before its grants are touched. drain_epoch: the epoch that
-- began the last draining.
ALTER TABLE stockgate.partition_state
    ADD COLUMN ahead       boolean NOT NULL DEFAULT false,
    ADD COLUMN drain_epoch bigint  NOT NULL DEFAULT 0;

-- gateway.redis_out: the partitions whose Redis node the replica does not reach: a bit each, in hex, partition 0 first; '' = none.
ALTER TABLE stockgate.gateway ADD COLUMN redis_out text NOT NULL DEFAULT '';

-- doubtful: replicas that fell silent before they had drained, until they drain under that epoch or a later one, or somebody clears them.
CREATE TABLE stockgate.doubtful (
    gateway text        NOT NULL,
    p       integer     NOT NULL,
    epoch   bigint      NOT NULL,
    at      timestamptz NOT NULL,
    PRIMARY KEY (gateway, p)
);

-- Repairs that are to be tried next.
CREATE INDEX compensation_next ON stockgate.compensation (next_at) WHERE state IN ('pending', 'processing');

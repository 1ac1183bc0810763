-- +goose Up
-- Ids are claimed in partitions that may have no SKU that sells ahead. So all of them drain once anything does, and partition_state.ahead
-- says the same in all: something sells, or has sold, ahead in this deployment.
UPDATE stockgate.partition_state SET ahead = true
WHERE NOT ahead AND EXISTS (SELECT 1 FROM stockgate.partition_state WHERE ahead);

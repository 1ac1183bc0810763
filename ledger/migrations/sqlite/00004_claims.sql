-- +goose Up
-- Ids are claimed in partitions that may have no SKU that sells ahead. So all of them drain once anything does, and
-- stockgate_partition_state.ahead says the same in all: something sells, or has sold, ahead in this deployment.
UPDATE stockgate_partition_state SET ahead = 1
WHERE NOT ahead AND EXISTS (SELECT 1 FROM stockgate_partition_state WHERE ahead);

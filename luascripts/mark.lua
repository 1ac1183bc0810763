-- mark: note of a partition that something is done under its epoch. ids: the ids within answers.keep were loaded, so that SOLD_OUT may
-- be said to a request that carries an id. open: what was sold ahead before is settled, so that SKUs may sell ahead and ids be claimed.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
-- ARGV  1 epoch       it was done under, 1 … 2^53
--       2 field       ids | open
-- Reply 'K' noted; 'S' another epoch stands: nothing was written
-- Cost  2 commands.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'S' end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[1])
return 'K'

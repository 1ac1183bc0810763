-- ids_loaded: note that the ids within answers.keep were loaded after the epoch began, so that SOLD_OUT may be said to a request
-- that carries an id.
--
-- KEYS  1 partition   hash epoch, run_id, ids
-- ARGV  1 epoch       they were loaded under, 1 … 2^53
-- Reply 'K' noted; 'S' another epoch stands: nothing was written
-- Cost  2 commands.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'S' end
redis.call('HSET', KEYS[1], 'ids', ARGV[1])
return 'K'

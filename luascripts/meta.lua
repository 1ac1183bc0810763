-- meta: whose Redis this is. An empty one is taken.
--
-- KEYS  1 meta        hash deployment, partitions, prefix
-- ARGV  1 deployment  id drawn by the first migration
--       2 partitions  P, 1 … 65536
--       3 prefix      of all keys
--       4 TTL         ms
-- Reply array: deployment, partitions, prefix as they stand now; '' for what is missing
-- Cost  3 or 4 commands.

local is = redis.call('HMGET', KEYS[1], 'deployment', 'partitions', 'prefix')
if not is[1] and not is[2] and not is[3] then
  redis.call('HSET', KEYS[1], 'deployment', ARGV[1], 'partitions', ARGV[2], 'prefix', ARGV[3])
  is = {ARGV[1], ARGV[2], ARGV[3]}
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {is[1] or '', is[2] or '', is[3] or ''}

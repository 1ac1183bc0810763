-- find_open: the open entry of an id in a partition.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
-- ARGV  1 id          32 hex digits
-- Reply array, empty if there is none: the partition's epoch ('' if there is none), '0', id, entry, overdue in ms (negative: not yet due,
--       or no deadline stands)
-- Cost  4 commands. Writes nothing.

local entry = redis.call('HGET', KEYS[2], ARGV[1])
if not entry then return {} end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local deadline = redis.call('ZSCORE', KEYS[3], ARGV[1])
return {redis.call('HGET', KEYS[1], 'epoch') or '', '0', ARGV[1], entry, text(deadline and now - tonumber(deadline) or -1)}

-- entries: the open entries of a partition that are past their deadline, the longest overdue first.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
-- ARGV  1 limit       entries at most, 1 … 1000
-- Reply array of the partition's epoch ('' if there is none); 1 if open and due do not hold equally many, so that due is to be mended
--       (see scan_open), else 0; and then id, entry, overdue in ms, and so on
-- Cost  6 commands. Writes only what is in due without an entry.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local reply, open = {redis.call('HGET', KEYS[1], 'epoch') or '', '0'}, redis.call('HLEN', KEYS[2])
if open ~= redis.call('ZCARD', KEYS[3]) then
  if open == 0 then
    redis.call('UNLINK', KEYS[3])
    return reply
  end
  reply[2] = '1'
end

local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now), 'WITHSCORES', 'LIMIT', '0', ARGV[1])
local ids, orphans = {}, {}
for d = 1, #due, 2 do ids[#ids + 1] = due[d] end
if #ids == 0 then return reply end
local entries = redis.call('HMGET', KEYS[2], unpack(ids))
for i, id in ipairs(ids) do
  if entries[i] then
    reply[#reply + 1] = id
    reply[#reply + 1] = entries[i]
    reply[#reply + 1] = text(now - tonumber(due[2 * i]))
  else
    orphans[#orphans + 1] = id
  end
end
if #orphans > 0 then redis.call('ZREM', KEYS[3], unpack(orphans)) end
return reply

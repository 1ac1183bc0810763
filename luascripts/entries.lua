-- entries: the open entries of a partition, the longest overdue first.
--
-- KEYS  1 open        hash id → entry
--       2 due         zset id by deadline, ms
-- ARGV  1 all         0: only those past their deadline; 1: all
--       2 limit       entries at most, 1 … 1000
--       3 grace       deadline of an entry that has none, ms from now
--       4 TTL         of due if it had to be mended, ms
-- Reply array of id, entry, overdue in ms (negative: not yet due), and so on
-- Cost  5 commands. If open and due do not hold equally many, due is mended: one HKEYS of open and a command an entry.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then
  for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do
    redis.call('ZADD', KEYS[2], 'NX', text(now + tonumber(ARGV[3])), id)
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end

local last = ARGV[1] == '1' and '+inf' or text(now)
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', last, 'WITHSCORES', 'LIMIT', '0', ARGV[2])
local ids, reply, orphans = {}, {}, {}
for d = 1, #due, 2 do ids[#ids + 1] = due[d] end
if #ids == 0 then return reply end
local entries = redis.call('HMGET', KEYS[1], unpack(ids))
for i, id in ipairs(ids) do
  if entries[i] then
    reply[#reply + 1] = id
    reply[#reply + 1] = entries[i]
    reply[#reply + 1] = string.format('%.0f', now - tonumber(due[2 * i]))
  else
    orphans[#orphans + 1] = id
  end
end
if #orphans > 0 then redis.call('ZREM', KEYS[2], unpack(orphans)) end
return reply

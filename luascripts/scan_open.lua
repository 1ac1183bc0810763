-- scan_open: a page of all open entries of a partition. Entries that stand from the first page to the last come at least once, others
-- may or may not. Those that have no deadline get one.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
-- ARGV  1 cursor      that the page before ended with; 0: the first page
--       2 limit       entries about, 1 … 1000: Redis gives as many or a few more, or all of a hash that is small
--       3 grace       deadline of an entry that has none, ms from now
--       4 TTL         of due if it had to be mended, ms
-- Reply array of the partition's epoch ('' if there is none); the cursor of the next page (0: this was the last); and then id, entry,
--       overdue in ms (negative: not yet due), and so on
-- Cost  3 commands and 1 an entry; 1 more for each that has no deadline.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local page = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
local reply, mended = {redis.call('HGET', KEYS[1], 'epoch') or '', page[1]}, false
local entries = page[2]
for e = 1, #entries, 2 do
  local deadline = redis.call('ZSCORE', KEYS[3], entries[e])
  if not deadline then
    deadline = text(now + tonumber(ARGV[3]))
    redis.call('ZADD', KEYS[3], deadline, entries[e])
    mended = true
  end
  reply[#reply + 1] = entries[e]
  reply[#reply + 1] = entries[e + 1]
  reply[#reply + 1] = text(now - tonumber(deadline))
end
if mended then redis.call('PEXPIRE', KEYS[3], ARGV[4]) end
return reply

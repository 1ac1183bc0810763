-- registers: what is held for some SKUs of a partition, read in one moment.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 out         hash SKU → units in open, '#' → epoch it was summed under
--       3 …           keys of SKUs
-- ARGV  one SKU a key, in the same order
-- Reply array: the partition's epoch, the epoch out was summed under, then per SKU epoch, ver, base, rest, paused, ahead, out as they
--       stand; '' for what is missing, '?' for all seven if the key is not a hash
-- Cost  2 commands and 1 a SKU. Writes nothing.

local reply = {redis.call('HGET', KEYS[1], 'epoch') or '', ''}
local outs = redis.call('HMGET', KEYS[2], SUMMED, unpack(ARGV))
reply[2] = outs[1] or ''
for s = 1, #ARGV do
  local r = redis.pcall('HMGET', KEYS[2 + s], 'epoch', 'ver', 'base', 'rest', 'paused', 'ahead')
  for f = 1, 6 do reply[#reply + 1] = r.err and '?' or r[f] or '' end
  reply[#reply + 1] = r.err and '?' or outs[1 + s] or ''
end
return reply

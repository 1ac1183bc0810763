-- load: the only creator of SKU keys. It makes the key of a SKU that has none under the partition's epoch, or one that cannot be
-- read, and sums what it has out from open; a readable key of this epoch only gets a newer fact. The key of a SKU that sells ahead is made
-- only once the partition is open for that: before, nobody knows what was sold from its grant. Its fact is left out, so that it counts as
-- not loaded.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 out         hash SKU → units in open, '#' → epoch it was summed under
--       4 …           F keys of SKUs, one a fact
-- ARGV  1 epoch       that the caller knows, 1 … 2^53; every fact is of this epoch
--       2 run id      of the server that was loaded; '' = do not ask
--       3 TTL         of the keys, ms
--       4 F           facts, 1 … 128
--       then F times  SKU, ver, base, rest (0 … 2^53), paused (0 | 1), ahead (0 | 1)
-- Reply 'S' stale: nothing was read or written
--       'K' n: done; n entries of open cannot be read and are not in the sums
-- Cost  2 + F commands to look, 3 a key made; HVALS of open once if out is
--       summed (as long as there are reservations not yet settled).

local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'open')
if not current(part, ARGV[1], ARGV[2]) then return 'S' end

local ttl, F = ARGV[3], tonumber(ARGV[4])
local skus = {}
for f = 1, F do skus[f] = ARGV[6 * f - 1] end
local outs = redis.pcall('HMGET', KEYS[3], SUMMED, unpack(skus))
local summed = not outs.err and outs[1] == ARGV[1]
local may_go_ahead = part[3] == ARGV[1]

-- make: keys to write whatever stands there. newer: keys that stand and get a newer fact. sum: SKUs whose out is to be made anew.
local make, newer, sum = {}, {}, {}
local stands = {} -- ver by SKU, as earlier facts of this call leave it
for f = 1, F do
  local sku, ver, granted = skus[f], tonumber(ARGV[6 * f]), ARGV[6 * f + 4] == '1'
  local r = redis.pcall('HMGET', KEYS[3 + f], 'epoch', 'ver', 'base', 'rest')
  local sound = not r.err and r[1] == ARGV[1] and integer(r[3]) and integer(r[4]) and integer(r[2])
  local left_out = granted and not (sound or stands[sku] or may_go_ahead)
  if not (sound or stands[sku] or left_out) then
    make[#make + 1] = f
    stands[sku] = ver
  elseif not left_out and ver > (stands[sku] or sound) then
    newer[#newer + 1] = f
    stands[sku] = ver
  end
  if not left_out and (not sound or not summed or not integer(outs[1 + f] or '0')) then sum[#sum + 1] = sku end
end

local sums, unreadable = {}, 0
if #sum > 0 then
  for _, entry in ipairs(redis.call('HVALS', KEYS[2])) do
    local lines = lines_of(entry)
    if not lines then unreadable = unreadable + 1 end
    for l = 1, #(lines or {}), 2 do sums[lines[l]] = (sums[lines[l]] or 0) + lines[l + 1] end
  end
end

-- Writes.
local function write(f)
  local a = 6 * f
  redis.call('HSET', KEYS[3 + f], 'epoch', ARGV[1], 'ver', ARGV[a], 'base', ARGV[a + 1], 'rest', ARGV[a + 2],
    'paused', ARGV[a + 3], 'ahead', ARGV[a + 4])
end

if not summed and #sum > 0 then
  -- The sums of all SKUs are gone or of an older epoch: all are made anew, so that keys that stand are right again too. A load that
  -- only left facts out has not looked into open: it must not call the sums made.
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[3], SUMMED, ARGV[1])
  for sku, n in pairs(sums) do redis.call('HSET', KEYS[3], sku, text(n)) end
else
  for _, sku in ipairs(sum) do
    if sums[sku] then
      redis.call('HSET', KEYS[3], sku, text(sums[sku]))
    else
      redis.call('HDEL', KEYS[3], sku)
    end
  end
end
for _, f in ipairs(make) do
  redis.call('DEL', KEYS[3 + f])
  write(f)
end
for _, f in ipairs(newer) do write(f) end
for f = 1, F do redis.call('PEXPIRE', KEYS[3 + f], ttl) end
for k = 1, 3 do redis.call('PEXPIRE', KEYS[k], ttl) end
return 'K' .. unreadable

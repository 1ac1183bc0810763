-- close: end open entries, write down what is known of their ids, and replace registers by facts. It may be repeated, delayed,
-- reordered and sent by anyone: an entry goes only with its own try, a fact replaces only an older one, and so does what it says of a
-- user.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
--       4 out         hash SKU → units in open, '#' → epoch it was summed under
--       5 …           F keys of SKUs, one a fact
--       then          N id records or claims, one a closing; the name ends with the id, 32 hex digits
--       then          U take registers: string epoch,ver,qty
-- ARGV  1 epoch       that the caller knows, 1 … 2^53; every fact is of this epoch
--       2 run id      of the server that was loaded; '' = do not ask
--       3 keep        TTL of a record that won leaves, ms
--       4 TTL         of all other keys, renewed, ms
--       5 take TTL    of a take register, from its writing on; it is not renewed, ms
--       6 F           facts, 0 … 128
--       7 N           closings, 0 … 128; U is 0 … 512, F + N + U ≥ 1
--       then F times  ver, base, rest (0 … 2^53), paused (0 | 1), ahead (0 | 1)
--       then N times  try|fingerprint if won, try if lost, 16 hex digits each; of a claim the same with a | behind, which is the claim
--                     of an owner who is done. A claim's closing leaves open alone: the entry is the record's
--       then U times  epoch,ver,qty: what a user has of a SKU since that transaction, each 0 … 2^53, of this epoch
-- Reply 'S' stale: nothing was read or written
--       'K' n: done; n registers or entries were not what they must be and were left untouched
-- Cost  4 + F commands to look, 1 more if U > 0; 2 for entries that go, 1 a record, 2 a fact that is newer, 1 a take that is newer, 1
--       to 3 for out, 4 to renew.

local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id')
if not current(part, ARGV[1], ARGV[2]) then return 'S' end

local keep, ttl, take_ttl, F, N = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local U = #KEYS - 4 - F - N
local corrupt = 0

-- Closings: which entries go, by how much out falls, what becomes of the records.
local gone, falls, skus, writes = {}, {}, {}, {}
local function fall(lines)
  for l = 1, #lines, 2 do
    local sku = lines[l]
    if not falls[sku] then
      skus[#skus + 1] = sku
      falls[sku] = 0
    end
    falls[sku] = falls[sku] + lines[l + 1]
  end
end

if N > 0 then
  local ids, first = {}, 8 + 5 * F
  for i = 1, N do ids[i] = string.sub(KEYS[4 + F + i], -32) end
  local entries = redis.call('HMGET', KEYS[2], unpack(ids))
  local records = redis.call('MGET', unpack(KEYS, 5 + F, 4 + F + N))
  local entry, record = {}, {} -- by id and by key: a closing sees what an earlier one of the same batch did
  for i = 1, N do
    entry[ids[i]] = entries[i]
    record[KEYS[4 + F + i]] = records[i]
  end
  for i = 1, N do
    local id, key, becomes = ids[i], KEYS[4 + F + i], ARGV[first + i - 1]
    local open, try, of_claim = entry[id], string.sub(becomes, 1, 16), string.sub(becomes, -1) == '|'
    if open and not of_claim and string.sub(open, 1, 16) == try then
      local lines = lines_of(open)
      if lines then
        fall(lines)
        gone[#gone + 1] = id
        entry[id] = false
      else
        corrupt = corrupt + 1
      end
    end
    if #becomes > 17 then
      writes[#writes + 1] = {key, becomes}
      record[key] = becomes
    elseif record[key] and string.sub(record[key], 1, 16) == try then
      writes[#writes + 1] = {key, false}
      record[key] = false
    end
  end
end

-- out: a sum that is gone or of another epoch is left alone, the next load makes it anew from open.
local sums, zeros = {}, {}
if #skus > 0 then
  local outs = redis.call('HMGET', KEYS[4], SUMMED, unpack(skus))
  if outs[1] == ARGV[1] then
    for s = 1, #skus do
      local taken = integer(outs[1 + s] or '0')
      if not taken or taken < falls[skus[s]] then
        corrupt = corrupt + 1
      elseif taken == falls[skus[s]] then
        zeros[#zeros + 1] = skus[s]
      else
        sums[#sums + 1] = skus[s]
        sums[#sums + 1] = text(taken - falls[skus[s]])
      end
    end
  end
end

-- Facts: only on keys of this epoch, only newer ones.
local newer, seen, stands = {}, {}, {} -- stands: ver by key, as earlier facts of this call leave it
for f = 1, F do
  local r = redis.pcall('HMGET', KEYS[4 + f], 'epoch', 'ver')
  if r.err then
    corrupt = corrupt + 1
  elseif r[1] == ARGV[1] then
    local ver = integer(r[2])
    seen[#seen + 1] = KEYS[4 + f]
    if not ver then
      corrupt = corrupt + 1
    elseif tonumber(ARGV[3 + 5 * f]) > (stands[KEYS[4 + f]] or ver) then
      newer[#newer + 1] = f
      stands[KEYS[4 + f]] = tonumber(ARGV[3 + 5 * f])
    end
  end
end

-- Takes: only newer ones. A register does not follow its SKU's key: a fact that came too late for the SKU may be the last word on a
-- user, because the later transactions were those of others.
local takes, heard = {}, {} -- by key: register to write; epoch and ver as they stand, or as earlier takes of this call leave them
if U > 0 then
  local standing = redis.call('MGET', unpack(KEYS, 5 + F + N))
  for u = 1, U do
    local key, register = KEYS[4 + F + N + u], ARGV[7 + 5 * F + N + u]
    heard[key] = heard[key] or {take_of(standing[u])}
    local epoch, ver = take_of(register)
    local e, v = heard[key][1] or -1, heard[key][2] or -1
    if epoch > e or (epoch == e and ver > v) then
      takes[key], heard[key] = register, {epoch, ver}
    end
  end
end

-- Writes. ZCARD makes a due of another type fail before the first one.
redis.call('ZCARD', KEYS[3])
if #gone > 0 then
  redis.call('HDEL', KEYS[2], unpack(gone))
  redis.call('ZREM', KEYS[3], unpack(gone))
end
if #zeros > 0 then redis.call('HDEL', KEYS[4], unpack(zeros)) end
if #sums > 0 then redis.call('HSET', KEYS[4], unpack(sums)) end
for _, w in ipairs(writes) do
  if w[2] then
    redis.call('SET', w[1], w[2], 'PX', keep)
  else
    redis.call('DEL', w[1])
  end
end
for _, f in ipairs(newer) do
  local a = 3 + 5 * f
  redis.call('HSET', KEYS[4 + f], 'ver', ARGV[a], 'base', ARGV[a + 1], 'rest', ARGV[a + 2], 'paused', ARGV[a + 3], 'ahead', ARGV[a + 4])
end
for key, register in pairs(takes) do redis.call('SET', key, register, 'PX', take_ttl) end
for _, key in ipairs(seen) do redis.call('PEXPIRE', key, ttl) end
for k = 1, 4 do redis.call('PEXPIRE', KEYS[k], ttl) end
return 'K' .. corrupt

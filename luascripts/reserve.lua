-- reserve: pre-deduct a batch of reservations of one partition, in the order of arrival.
--
-- KEYS  1 partition   hash epoch, run_id, ids
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
--       4 out         hash SKU → units in open, '#' → epoch it was summed under
--       5 …           S keys of SKUs: hash epoch, base, rest, ver, paused
--       then          N id records: string try|fingerprint
-- ARGV  1 epoch       that the caller knows, 1 … 2^53
--       2 run id      of the server that was loaded; '' = do not ask
--       3 S           distinct SKUs, 1 … 512
--       4 N           reservations, 1 … 128
--       5 TTL         of what is written, ms
--       6 …           S SKUs, in the order of their keys
--       then N times  id (32 hex digits), ms until the open deadline, entry (starts with its record try|fingerprint|),
--                     number of lines n ≥ 1, and n times: SKU (1 … S), quantity (1 … 2^53)
-- Reply 'S' stale: another epoch or another server, nothing was read or written
--       'K' ids ';' S times base ',' rest ',' ver ';' N times one of, in order of precedence
--         'D' record open   the id is known: its record (33 bytes), and 1 if that try stands in open, else 0
--         'N' s ','         SKU s is not loaded      'C' s ','  its registers are not whole numbers
--         'P' s ','         it is paused             'T' s ','  sold out: qty > base + rest
--         'Q' s ','         wait: free < qty ≤ base + rest
--         'W'               won, or won before by this same try
--       ids: 1 if the partition's ids were loaded under this epoch, else 0
-- Cost  4 + S commands; 1 more for a known id; 2 more for a winner and 6 more for all winners. Losers write nothing.

local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'ids')
if not current(part, ARGV[1], ARGV[2]) then return 'S' end

local S, N, ttl = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local NOT_LOADED, CORRUPT, PAUSED, SOLD_OUT, WAIT, WON = 1, 2, 3, 4, 5, 6
local letters = {'N', 'C', 'P', 'T', 'Q', 'W'}

-- Registers. fixed[s]: the code of every request for SKU s, whatever its quantity.
local outs = redis.call('HMGET', KEYS[4], SUMMED, unpack(ARGV, 6, 5 + S))
local summed = outs[1] == ARGV[1]
local fixed, heads, total, free, out = {}, {}, {}, {}, {}
for s = 1, S do
  local r = redis.pcall('HMGET', KEYS[4 + s], 'epoch', 'base', 'rest', 'ver', 'paused')
  heads[s] = '0,0,0'
  if r.err then
    fixed[s] = CORRUPT
  elseif r[1] ~= ARGV[1] or not summed then
    fixed[s] = NOT_LOADED
  else
    local base, rest, ver, taken = integer(r[2]), integer(r[3]), integer(r[4]), integer(outs[1 + s] or '0')
    if not (base and rest and ver and taken) or base + rest > MAX then
      fixed[s] = CORRUPT
    else
      heads[s] = r[2] .. ',' .. r[3] .. ',' .. r[4]
      total[s], free[s], out[s] = base + rest, base - taken, taken
      if r[5] ~= '0' then fixed[s] = r[5] == '1' and PAUSED or CORRUPT end
    end
  end
end

-- Decisions. What an earlier item of the batch has won is seen by the later ones.
local records = redis.call('MGET', unpack(KEYS, 5 + S, 4 + S + N))
local reply, fields, deadlines, wins, entries, moved = {}, {}, {}, {}, {}, {}

local function known(id, record, entry, first)
  local open = entries[id] or redis.call('HGET', KEYS[2], id)
  local standing = open and string.sub(open, 1, 16)
  if standing == string.sub(entry, 1, 16) then return 'W' end
  record = record or string.sub(open, 1, 33)
  if #record ~= 33 then return 'C' .. first .. ',' end
  return 'D' .. record .. (standing == string.sub(record, 1, 16) and '1' or '0')
end

local function decide(at, n)
  local code, first = WON, ARGV[at]
  for l = at, at + 2 * (n - 1), 2 do
    local s, qty = tonumber(ARGV[l]), tonumber(ARGV[l + 1])
    local c = fixed[s] or (qty > total[s] and SOLD_OUT) or (qty > free[s] and WAIT) or WON
    if c < code then code, first = c, ARGV[l] end
  end
  return code, first
end

local function take(at, n)
  for l = at, at + 2 * (n - 1), 2 do
    local s, qty = tonumber(ARGV[l]), tonumber(ARGV[l + 1])
    free[s], out[s], moved[s] = free[s] - qty, out[s] + qty, true
  end
end

local at = 6 + S
for i = 1, N do
  local id, entry, n = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  if records[i] or entries[id] then
    reply[i] = known(id, entries[id] and string.sub(entries[id], 1, 33) or records[i], entry, ARGV[at + 4])
  else
    local code, first = decide(at + 4, n)
    if code < WON then
      reply[i] = letters[code] .. first .. ','
    elseif redis.call('HEXISTS', KEYS[2], id) == 1 then
      reply[i] = known(id, false, entry, first) -- its record is gone, the entry counts
    else
      take(at + 4, n)
      entries[id] = entry
      wins[#wins + 1] = i
      fields[#fields + 1] = id
      fields[#fields + 1] = entry
      deadlines[#deadlines + 1] = ARGV[at + 1]
      deadlines[#deadlines + 1] = id
      reply[i] = 'W'
    end
  end
  at = at + 4 + 2 * n
end

-- Writes. Everything above only read; ZCARD makes a due of another type fail before the first write.
if #wins > 0 then
  redis.call('ZCARD', KEYS[3])
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  for d = 1, #deadlines, 2 do deadlines[d] = text(now + tonumber(deadlines[d])) end
  redis.call('HSET', KEYS[2], unpack(fields))
  redis.call('ZADD', KEYS[3], unpack(deadlines))
  for w = 1, #wins do
    redis.call('SET', KEYS[4 + S + wins[w]], string.sub(fields[2 * w], 1, 33), 'PX', ttl)
  end
  local sums = {}
  for s in pairs(moved) do
    sums[#sums + 1] = ARGV[5 + s]
    sums[#sums + 1] = text(out[s])
  end
  redis.call('HSET', KEYS[4], unpack(sums))
  redis.call('PEXPIRE', KEYS[2], ttl)
  redis.call('PEXPIRE', KEYS[3], ttl)
  redis.call('PEXPIRE', KEYS[4], ttl)
end

local ids = part[3] == ARGV[1] and '1' or '0'
return 'K' .. ids .. ';' .. table.concat(heads, ';') .. ';' .. table.concat(reply)

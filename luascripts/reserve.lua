-- reserve: pre-deduct a batch of reservations in one partition, in the order of arrival. Only their lines of this partition are seen.
-- A peek is decided like a reservation, writes nothing and takes nothing from those after it.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 open        hash id → entry
--       3 due         zset id by deadline, ms
--       4 out         hash SKU → units in open, '#' → epoch it was summed under
--       5 …           S keys of SKUs: hash epoch, base, rest, ver, paused, ahead
--       then          N id records: string try|fingerprint; the name ends with the id, 32 hex digits
--       then          T take registers: string epoch,ver,qty; one a limited line, none if no line is limited
-- ARGV  1 epoch       that the caller knows, 1 … 2^53
--       2 run id      of the server that was loaded; '' = do not ask
--       3 TTL         of what is written, ms
--       4 numbers     JSON array, for a number costs a tenth of an argument: S distinct SKUs (1 … 512), N reservations (1 … 128), and
--                     N times: bytes of its entry, ms until its open deadline (0: peek; below 0: that many, and it is to go ahead), number
--                     of lines n ≥ 1, and n times: SKU (1 … S), quantity (1 … 2^53); then T times, in the order of their keys: place of a limited line's SKU in this array, most
--                     units that its user may have (1 … 2^53)
--       5 entries     N entries one behind another; each starts with its record, try|fingerprint| (of a peek the record is all)
--       6 …           S SKUs, in the order of their keys
-- Reply 'S' stale: another epoch or another server, nothing was read or written
--       'K' ids ';' S times base ',' rest ',' ver ';' (of a SKU that sells ahead: base ',' rest ',' ver ',' free ';') N times one of, in
--       order of precedence
--         'D' record open   the id is known: its record (33 bytes), and 1 if that try stands in open, else 0
--         'X'               draining: it is to go ahead, and the partition is not open for that
--         'N' s ','         SKU s is not loaded      'C' s ','  its registers are not whole numbers
--         'P' s ','         it is paused             'L' s ','  limit: the user's units + qty are too many
--         'T' s ','         sold out: qty > base + rest
--         'Q' s ','         wait: free < qty ≤ base + rest, or it is to go ahead and SKU s sells from no grant
--         'W'               won, or won before by this same try; peek: it would be
--       ids: 1 if the partition's ids were loaded under this epoch, else 0
--       free: base − out after the batch; below 0 if a fact came before the closings that it counts
-- Cost  3 + S commands, and INFO; 1 more if a line is limited; 1 more for a known id; 1 more for a winner and 9 for all winners.
--       Losers and peeks write nothing.

local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'ids', 'open')
if not current(part, ARGV[1], ARGV[2]) then return 'S' end

local ttl, numbers, blob = ARGV[3], cjson.decode(ARGV[4]), ARGV[5]
local S, N = numbers[1], numbers[2]
local NOT_LOADED, CORRUPT, PAUSED, LIMIT, SOLD_OUT, WAIT, WON = 1, 2, 3, 4, 5, 6, 7
local letters = {'N', 'C', 'P', 'L', 'T', 'Q'}
local may_go_ahead = part[4] == ARGV[1]

-- Registers. fixed[s]: the code of every request for SKU s, whatever its quantity.
local outs = redis.call('HMGET', KEYS[4], SUMMED, unpack(ARGV, 6, 5 + S))
local summed = outs[1] == ARGV[1]
-- granted[s]: base is what is granted. Keys that a release before v0.3.0 made have no such field, and are not.
local fixed, heads, total, base, taken, granted = {}, {}, {}, {}, {}, {}
for s = 1, S do
  local r = redis.pcall('HMGET', KEYS[4 + s], 'epoch', 'base', 'rest', 'ver', 'paused', 'ahead')
  heads[s] = '0,0,0'
  if r.err then
    fixed[s] = CORRUPT
  elseif r[1] ~= ARGV[1] or not summed then
    fixed[s] = NOT_LOADED
  else
    local rest, ver = integer(r[3]), integer(r[4])
    base[s], taken[s] = integer(r[2]), integer(outs[1 + s] or '0')
    if not (base[s] and rest and ver and taken[s]) or base[s] + rest > MAX then
      fixed[s] = CORRUPT
    else
      heads[s] = r[2] .. ',' .. r[3] .. ',' .. r[4]
      total[s] = base[s] + rest
      if r[5] ~= '0' then fixed[s] = r[5] == '1' and PAUSED or CORRUPT end
      if r[6] and r[6] ~= '0' then
        granted[s] = true
        if r[6] ~= '1' then fixed[s] = CORRUPT end
      end
    end
  end
end

-- Limits. over[at]: LIMIT if the user of the line at numbers[at] would have too many units of it, as far as Redis has heard. A sum
-- of two registers may be beyond 2^53, so the limit is lowered instead.
local over, T = {}, #KEYS - 4 - S - N
if T > 0 then
  local takes, pairs_from = redis.call('MGET', unpack(KEYS, 5 + S + N)), #numbers - 2 * T
  for t = 1, T do
    local at, limit = numbers[pairs_from + 2 * t - 1], numbers[pairs_from + 2 * t]
    local epoch, _, has = take_of(takes[t])
    if epoch == tonumber(ARGV[1]) and has > limit - numbers[at + 1] then over[at] = LIMIT end
  end
end

local records = redis.call('MGET', unpack(KEYS, 5 + S, 4 + S + N))
local reply, out, mine, wins

-- known answers for an id with a record or an open entry.
local function known(key, entry, record, first)
  local open = mine[key] or redis.call('HGET', KEYS[2], string.sub(key, -32))
  local standing = open and string.sub(open, 1, 16)
  if standing == string.sub(entry, 1, 16) then return 'W' end
  record = record or string.sub(open, 1, 33)
  if #record ~= 33 then return 'C' .. first .. ',' end
  return 'D' .. record .. (standing == string.sub(record, 1, 16) and '1' or '0')
end

-- decide gives the code of the lines at numbers[at], and the SKU that decided.
local function decide(at, n, ahead)
  local code, first = WON, numbers[at]
  for l = at, at + 2 * (n - 1), 2 do
    local s, qty = numbers[l], numbers[l + 1]
    local c = fixed[s] or over[l] or (qty > total[s] and SOLD_OUT)
      or ((qty > base[s] - (out[s] or taken[s]) or ahead and not granted[s]) and WAIT) or WON
    if c < code then code, first = c, s end
  end
  return code, first
end

-- pass decides about all, in order; what an earlier one has won is seen by the later ones. lost: by key, entries in open whose record
-- is gone.
local function pass(lost)
  reply, out, mine, wins = {}, {}, {}, {}
  local at, from = 3, 1
  for i = 1, N do
    local key, size, ms, n = KEYS[4 + S + i], numbers[at], numbers[at + 1], numbers[at + 2]
    if records[i] or mine[key] then
      local entry = string.sub(blob, from, from + size - 1)
      reply[i] = known(key, entry, mine[key] and string.sub(mine[key], 1, 33) or records[i], numbers[at + 3])
    elseif ms < 0 and not may_go_ahead then
      reply[i] = 'X'
    else
      local code, first = decide(at + 3, n, ms < 0)
      if code < WON then
        reply[i] = letters[code] .. first .. ','
      elseif lost[key] then
        reply[i] = known(key, string.sub(blob, from, from + size - 1), false, first)
      else
        local entry = string.sub(blob, from, from + size - 1)
        if ms ~= 0 then
          for l = at + 3, at + 1 + 2 * n, 2 do
            local s = numbers[l]
            out[s] = (out[s] or taken[s]) + numbers[l + 1]
          end
          mine[key] = entry
        end
        wins[#wins + 1] = {key, string.sub(key, -32), entry, ms}
        reply[i] = 'W'
      end
    end
    from, at = from + size, at + 3 + 2 * n
  end
end

-- A winner must not have an entry in open. One without a record is so rare that it is looked for only now, and all is decided again
-- if there is one.
local lost, found = {}, true
pass(lost)
while found and #wins > 0 do
  found = false
  local ids = {}
  for w = 1, #wins do ids[w] = wins[w][2] end
  local entries = redis.call('HMGET', KEYS[2], unpack(ids))
  for w = 1, #wins do
    if entries[w] then
      lost[wins[w][1]] = true
      found = true
    end
  end
  if found then pass(lost) end
end

-- Writes, for all wins but those of peeks. Everything above only read; ZCARD makes a due of another type fail before the first write.
if next(mine) then
  redis.call('ZCARD', KEYS[3])
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local entries, deadlines, sums = {}, {}, {}
  for w = 1, #wins do
    local win, n = wins[w], #entries
    if win[4] ~= 0 then
      entries[n + 1], entries[n + 2] = win[2], win[3]
      deadlines[n + 1], deadlines[n + 2] = text(now + math.abs(win[4])), win[2]
    end
  end
  for s, n in pairs(out) do
    sums[#sums + 1] = ARGV[5 + s]
    sums[#sums + 1] = text(n)
  end
  redis.call('HSET', KEYS[2], unpack(entries))
  redis.call('ZADD', KEYS[3], unpack(deadlines))
  redis.call('HSET', KEYS[4], unpack(sums))
  for key, entry in pairs(mine) do redis.call('SET', key, string.sub(entry, 1, 33), 'PX', ttl) end
  for k = 2, 4 do redis.call('PEXPIRE', KEYS[k], ttl) end
end

for s in pairs(granted) do
  if base[s] and taken[s] then heads[s] = heads[s] .. ',' .. text(base[s] - (out[s] or taken[s])) end
end
local ids = part[3] == ARGV[1] and '1' or '0'
return 'K' .. ids .. ';' .. table.concat(heads, ';') .. ';' .. table.concat(reply)

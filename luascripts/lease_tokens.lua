-- lease_tokens: take tokens out of buckets that all replicas share, a lot for each, and charge what was spent before it was asked for.
--
-- KEYS  N buckets     string missing,at: millionths of a token missing from a full bucket, at a moment of Redis TIME in µs; no key: full
-- ARGV  per bucket    rate, millionths of a token a second (1 … 10^15); burst, tokens (1 … 10^9); spent, tokens to charge (0 … 2^53);
--                     want, tokens (0 … 2^53)
-- Reply array: per bucket granted, tokens (0 … want); left, whole tokens in the bucket now (negative: debt, at most burst); wait, µs
--       until it holds a token if nobody takes one (0: it does), at most an hour
--       An error, without a write, if an argument is out of range.
-- Cost  1 command, and 2 a bucket. A bucket that is full when it is asked and stays full is not written. A key lives until its bucket
--       is full again, and a second.
--
-- All numbers are whole and below 2^53, so nothing is rounded: what a bucket gains is counted to a millionth of a token, and the time that
-- is left over stays in the register. A clock that goes back gives nothing and takes nothing. What is no register counts as full: it only
-- limits, and ends by itself.

local UNIT, HOUR, LONGEST = 1000000, 3600000000, 2592000000 -- LONGEST: 30 days in ms

local asks = {}
for i = 1, #KEYS do
  local a = 4 * (i - 1)
  local rate, burst, spent, want = integer(ARGV[a + 1]), integer(ARGV[a + 2]), integer(ARGV[a + 3]), integer(ARGV[a + 4])
  if not (rate and burst and spent and want) or rate < 1 or rate > 1000000000 * UNIT or burst < 1 or burst > 1000000000 then
    return redis.error_reply('ERR lease_tokens: arguments of bucket ' .. i .. ' are out of range')
  end
  asks[i] = {rate, burst * UNIT, math.min(spent, 2 * burst) * UNIT, want}
end

-- refilled is what is still missing after the time from since to now, and the moment that this is true of.
local function refilled(missing, since, now, rate)
  local us = now - since
  local seconds = math.floor(us / UNIT)
  if us <= 0 or seconds * rate >= missing then return us <= 0 and missing or 0, now end
  us = us - seconds * UNIT
  local high = math.floor(rate / UNIT)
  local low = us * (rate - high * UNIT)
  local gain = seconds * rate + us * high + math.floor(low / UNIT)
  if gain >= missing then return 0, now end
  return missing - gain, now - math.floor(low % UNIT / rate)
end

local time = redis.call('TIME')
local now = time[1] * UNIT + time[2]
local reply = {}
for i, ask in ipairs(asks) do
  local rate, full, spent, want = ask[1], ask[2], ask[3], ask[4]
  local register = redis.pcall('GET', KEYS[i])
  local missing, at = string.match(type(register) == 'string' and register or '', '^(%d+),(%d+)$')
  missing, at = integer(missing), integer(at)
  if missing and at then
    missing, at = refilled(missing, math.min(at, now), now, rate)
  else
    missing, at = 0, now
  end
  missing = math.min(missing + spent, 2 * full)
  local granted = math.max(0, math.min(want, math.floor((full - missing) / UNIT)))
  missing = missing + granted * UNIT
  if missing > 0 then
    local ttl = math.min(math.ceil(missing / rate * 1000) + 1000, LONGEST)
    redis.call('SET', KEYS[i], text(missing) .. ',' .. text(at), 'PX', text(ttl))
  end
  local lacks = missing - (full - UNIT) -- from a whole token
  reply[#reply + 1] = granted
  reply[#reply + 1] = math.floor((full - missing) / UNIT)
  reply[#reply + 1] = lacks > 0 and math.min(math.ceil(lacks / rate * UNIT), HOUR) or 0
end
return reply

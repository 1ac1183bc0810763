-- claim: take ids for tries, in the order of arrival, before anything is forwarded ahead under them. Who comes first has the id until
-- its claim is closed or ends; another try gets it only by naming the one that it replaces. It may be repeated.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 …           N claims: string try|fingerprint|owner; the owner is '' once the id is settled
-- ARGV  1 epoch       that the caller knows, 1 … 2^53
--       2 run id      of the server that was loaded; '' = do not ask
--       3 numbers     JSON array of N TTLs of claims that are written, ms, 1 or more; N is 1 … 128
--       4 …           N times the try to replace (16 hex digits, all 0: none), and behind it the claim: try|fingerprint|owner
-- Reply 'S' stale: another epoch or another server, nothing was read or written
--       'X' draining: the partition is not open for selling ahead, nothing was read or written
--       'K' ids N times one of
--         'W'               ours: it is now, or this same try had it before, which changes nothing
--         'T' n ':' claim   taken by another try: its claim, n bytes
--         'C'               what stands there is no claim; it was left as it is
--       ids: 1 if the partition's ids were loaded under this epoch, else 0
-- Cost  2 commands, and INFO; 1 more for each id that is ours now.

local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id', 'ids', 'open')
if not current(part, ARGV[1], ARGV[2]) then return 'S' end
if part[4] ~= ARGV[1] then return 'X' end

local ttls, stands = cjson.decode(ARGV[3]), redis.call('MGET', unpack(KEYS, 2))
local reply, claims, mine = {part[3] == ARGV[1] and 'K1' or 'K0'}, {}, {}
for i = 1, #stands do
  local key, claim = KEYS[1 + i], string.sub(ARGV[3 + i], 17)
  local standing = mine[key] or stands[i]
  local try = standing and string.match(standing, '^(%x+)|%x+|')
  if standing and (not try or #try ~= 16) then
    reply[1 + i] = 'C'
  elseif try == string.sub(claim, 1, 16) then
    reply[1 + i] = 'W'
  elseif not standing or try == string.sub(ARGV[3 + i], 1, 16) then
    claims[#claims + 1] = {key, claim, text(ttls[i])}
    mine[key] = claim
    reply[1 + i] = 'W'
  else
    reply[1 + i] = 'T' .. #standing .. ':' .. standing
  end
end

for _, c in ipairs(claims) do redis.call('SET', c[1], c[2], 'PX', c[3]) end
return table.concat(reply)

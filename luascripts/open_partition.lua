-- open_partition: begin a new epoch of a partition, pinned to the server that executes this. Every SKU key of an older epoch counts
-- as not loaded from now on, the sums of out are made anew by the first load, the ids count as not loaded, and
-- nothing may go ahead. The entries of open stay, and so do claims.
--
-- KEYS  1 partition   hash epoch, run_id, ids, open
--       2 out         hash SKU → units in open
-- ARGV  1 epoch       to begin, 1 … 2^53
--       2 run id      to pin; '' = none can be known
--       3 check       1: the executing server must have that run id; 0: do not ask
--       4 TTL         of the partition's record, ms
-- Reply 'K' begun, or begun before with the same run id
--       'R' another server executes this: nothing was written
--       'E' epoch: one as high or higher stands already (with another run id if as high): nothing was written
-- Cost  5 commands.

local epoch = tonumber(ARGV[1])
if ARGV[3] == '1' and not executes(ARGV[2]) then return 'R' end
local part = redis.call('HMGET', KEYS[1], 'epoch', 'run_id')
local stands = integer(part[1]) or 0
if stands > epoch or (stands == epoch and part[2] ~= ARGV[2]) then return 'E' .. part[1] end
if stands < epoch then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run_id', ARGV[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 'K'

-- Shared head of every script; Go puts it before each of them. It has no KEYS and no ARGV of its own and writes nothing.

-- 2^53: a double keeps whole numbers exactly up to here. What is larger is refused, never rounded.
local MAX = 9007199254740992

-- Field of the out hash that names the epoch it was summed under. No SKU can be called so.
local SUMMED = '#'

-- text writes a number without rounding: Lua's own conversion keeps 14 digits only.
local function text(n) return string.format('%.0f', n) end

-- integer reads a register. nil: it is not a bare whole number in 0 … 2^53 ("100.0", "1e2", "0100", " 7", "" and the like).
local function integer(s)
  if type(s) ~= 'string' or #s > 16 then return nil end
  if s ~= '0' and not string.find(s, '^[1-9]%d*$') then return nil end
  local n = tonumber(s)
  if n > MAX or (n == MAX and s ~= text(n)) then return nil end -- 2^53 + 1 is read as 2^53
  return n
end

-- executes reports whether the server that runs this script is the one named. '' asks nothing.
local function executes(run_id)
  if run_id == '' then return true end
  return string.find(redis.call('INFO', 'server'), 'run_id:' .. run_id, 1, true) ~= nil
end

-- current reports whether partition record p (epoch, run_id, …) is what the caller knows, on the server that was loaded.
local function current(p, epoch, run_id)
  if p[1] ~= epoch then return false end
  return run_id == '' or (p[2] == run_id and executes(run_id))
end

-- lines_of reads the lines of an open entry, try|fingerprint|sku=qty,sku=qty|…, as sku, qty, sku, qty …; nil: it cannot be read.
local function lines_of(entry)
  local all = string.match(entry, '^%x+|%x+|([^|]+)|')
  if not all then return nil end
  local lines = {}
  for sku, digits in string.gmatch(all, '([^=,]+)=([^,]*)') do
    local qty = integer(digits)
    if not qty then return nil end
    lines[#lines + 1] = sku
    lines[#lines + 1] = qty
  end
  return lines
end

-- take_of reads a take register, epoch,ver,qty. nil: there is none, or it cannot be read, which counts as none: it only filters, the
-- database counts again.
local function take_of(register)
  local epoch, ver, qty = string.match(register or '', '^(%d+),(%d+),(%d+)$')
  epoch, ver, qty = integer(epoch), integer(ver), integer(qty)
  if epoch and ver and qty then return epoch, ver, qty end
  return nil
end

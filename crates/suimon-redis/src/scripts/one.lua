-- One pace or bucket: the common case, kept short for the server's sake. `decide.lua` has
-- the general one, `record.rs` the layout of a value, `units.rs` why every number here is
-- exact.
local key, order = KEYS[1], ARGV[1]
local id, unit, cost, cost_f, slack, slack_f, does, at, now_n = struct.unpack('<ddddddddd', order)
local v, now = redis.call('GET', key), at
if at < 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local now_f = now_n * (unit / 1000)
local is, expiry, epoch, tat, tat_f, ends, tail = id, 0, now, 0, 0, 0
if v then
  local seen, seen_n
  is = 0
  if #v >= 72 then
    is, expiry, epoch, seen, seen_n, tat, tat_f = struct.unpack('<ddddddd', v)
  end
  if is ~= id and is ~= -id then
    return {struct.pack('<dd', now, now_n), {v}}
  end
  -- The server's clock may have stepped back.
  if seen >= now and (seen > now or seen_n > now_n) then
    now, now_n = seen, seen_n
    now_f = now_n * (unit / 1000)
  end
  if is < 0 then
    -- @leases
    local left
    tat, tat_f, left, ends = settle_leases(v, 73, unit, now, now_f, tat, tat_f)
    is = left == '' and id or -id
    tail = string.sub(v, 57, 72) .. left .. string.sub(order, 89)
  end
end
local last, last_f = now + slack, now_f + slack_f
if last_f >= unit then
  last, last_f = last + 1, last_f - unit
end
-- It passes if the theoretical arrival is not later than that.
local passes = tat < last or tat == last and tat_f <= last_f
-- Once in a while: has somebody taken the key's expiry away?
if v and now % 64 == 0 and redis.call('PTTL', key) == -1 then
  redis.call('PEXPIRE', key, math.ceil(math.max(tat - now, ends - now, 0) / 1000) + 1000)
end
if not passes then
  return 'D' .. struct.pack('<dddd', now, now_n, tat, tat_f)
end
if does == 0 then
  return struct.pack('<dddd', now, now_n, tat, tat_f)
end
if tat <= now and (tat < now or tat_f < now_f) then
  tat, tat_f = now, now_f
end
tat, tat_f = tat + cost, tat_f + cost_f
if tat_f >= unit then
  tat, tat_f = tat + 1, tat_f - unit
end
-- From then on it is as good as new.
local fresh = tat + 2
if fresh < ends then
  fresh = ends
end
if fresh > 9e15 then
  return 'F'
end
local state = struct.pack('<dddd', now, now_n, tat, tat_f)
if fresh <= expiry then
  -- The key lives long enough already.
  redis.call('SETRANGE', key, 24, state)
else
  local how, ms = 'PXAT', 0
  if at < 0 then
    expiry = fresh + 1000000
    ms = (expiry - expiry % 1000) / 1000
  else
    -- A test's own time: it has nothing to do with the server's.
    expiry, how, ms = 0, 'PX', math.ceil((fresh - now) / 1000) + 600000
  end
  -- What was given back stays, or is nothing.
  tail = tail or (v and string.sub(v, 57) or string.sub(order, 73))
  redis.call('SET', key, struct.pack('<ddd', is, expiry, epoch) .. state .. tail, how, ms)
end
if does == 1 then
  return state
end
return state .. (v and string.sub(v, 57, 72) or string.sub(order, 73, 88)) .. struct.pack('<d', epoch)

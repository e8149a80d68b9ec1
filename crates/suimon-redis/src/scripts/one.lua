-- One pace or bucket: the common case, kept short for the server's sake. `decide.lua` has
-- the general one, `record.rs` the layout of a value, `units.rs` why every number here is
-- exact.
local key, order = KEYS[1], ARGV[1]
local id, unit, cost, cost_f, slack, slack_f, charges, at, now_n = struct.unpack('<ddddddddd', order)
local v, now = redis.call('GET', key), at
if at < 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local expiry, tat, tat_f, back, back_f = 0, 0, 0, 0, 0
if v then
  local is, seen, seen_n
  if #v >= 64 then
    is, expiry, seen, seen_n, tat, tat_f, back, back_f = struct.unpack('<dddddddd', v)
  end
  if is ~= id then
    return {struct.pack('<dd', now, now_n), {v}}
  end
  -- The server's clock may have stepped back.
  if seen >= now and (seen > now or seen_n > now_n) then
    now, now_n = seen, seen_n
  end
end
local now_f, last, last_f = 0, now + slack, slack_f
if now_n > 0 then
  now_f = now_n * (unit / 1000)
  last_f = last_f + now_f
  if last_f >= unit then
    last, last_f = last + 1, last_f - unit
  end
end
-- It passes if the theoretical arrival is not later than that.
local passes = tat < last or tat == last and tat_f <= last_f
-- Once in a while: has somebody taken the key's expiry away?
if v and now % 64 == 0 and redis.call('PTTL', key) == -1 then
  redis.call('PEXPIRE', key, math.ceil(math.max(tat + back - now, 0) / 1000) + 1000)
end
if not passes then
  return 'D' .. struct.pack('<dddddd', now, now_n, tat, tat_f, back, back_f)
end
if charges == 0 then
  return struct.pack('<dddddd', now, now_n, tat, tat_f, back, back_f)
end
if tat <= now and (tat < now or tat_f < now_f) then
  tat, tat_f = now, now_f
end
tat, tat_f = tat + cost, tat_f + cost_f
if tat_f >= unit then
  tat, tat_f = tat + 1, tat_f - unit
end
-- From then on it is as good as new, and nothing can be given back any more.
local fresh = tat + back + 2
if fresh > 9e15 then
  return 'F'
end
if fresh <= expiry then
  -- The key lives long enough already.
  local state = struct.pack('<dddd', now, now_n, tat, tat_f)
  redis.call('SETRANGE', key, 16, state)
  if back == 0 and back_f == 0 then
    return state
  end
  return state .. struct.pack('<dd', back, back_f)
end
local how, ms = 'PXAT', 0
if at < 0 then
  expiry = fresh + 1000000
  ms = (expiry - expiry % 1000) / 1000
else
  -- A test's own time: it has nothing to do with the server's.
  expiry, how, ms = 0, 'PX', math.ceil((fresh - now) / 1000) + 600000
end
local state = struct.pack('<dddddddd', id, expiry, now, now_n, tat, tat_f, back, back_f)
redis.call('SET', key, state .. string.sub(order, 73), how, ms)
return string.sub(state, 17)

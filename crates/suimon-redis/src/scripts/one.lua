-- One pace or bucket: the common case, kept short. `decide.lua` has the general one,
-- `record.rs` the layout of a value, `units.rs` why every number here is exact.
local v = redis.call('GET', KEYS[1])
local unit, cost, cost_f, slack, slack_f, charges, now, now_n = struct.unpack('<dddddddd', ARGV[2])
local at = now
if now < 0 then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local tag = ARGV[1]
local tat, tat_f, back, back_f = 0, 0, 0, 0
if v then
  local len = #tag
  if string.sub(v, 1, len) ~= tag then
    return {struct.pack('<dd', now, now_n), v}
  end
  local seen, seen_n
  seen, seen_n, tat, tat_f, back, back_f = struct.unpack('<dddddd', v, len + 1)
  if seen > now or seen == now and seen_n > now_n then
    now, now_n = seen, seen_n
  end
end
local now_f = now_n * (unit / 1000)
-- It passes if the theoretical arrival is not later than this.
local last, last_f = now + slack, now_f + slack_f
if last_f >= unit then
  last, last_f = last + 1, last_f - unit
end
if tat > last or tat == last and tat_f > last_f then
  if redis.call('PTTL', KEYS[1]) == -1 then
    redis.call('PEXPIRE', KEYS[1], math.ceil((tat + back - now + 2) / 1000))
  end
  return 'D' .. struct.pack('<dddddd', now, now_n, tat, tat_f, back, back_f)
end
if charges == 0 then
  return 'A' .. struct.pack('<dddddd', now, now_n, tat, tat_f, back, back_f)
end
if tat < now or tat == now and tat_f < now_f then
  tat, tat_f = now, now_f
end
tat, tat_f = tat + cost, tat_f + cost_f
if tat_f >= unit then
  tat, tat_f = tat + 1, tat_f - unit
end
-- It is as good as new, and nothing can be given back any more, before this.
local fresh = tat + back + 2
if fresh > 9e15 then
  return 'F'
end
local state = struct.pack('<dddddd', now, now_n, tat, tat_f, back, back_f)
if at < 0 then
  redis.call('SET', KEYS[1], tag .. state, 'PXAT', (fresh - fresh % 1000) / 1000 + 1)
else
  redis.call('SET', KEYS[1], tag .. state, 'PX', (fresh - now) / 1000 + 600000 - (fresh - now) / 1000 % 1)
end
return 'A' .. state

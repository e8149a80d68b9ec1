-- Tokens that are out on lease: they count as saved, so that a bucket does not refill in their
-- place. The same rules as in `suimon::store`, in pairs to the base `unit`; `record.rs` has the layout.
--
-- Moves an arrival on to now. Returns it; the leases that are still out, as they stand in a value, or
-- nothing; the instant at which all have ended and refilled; and the least arrival now.
local function settle_leases(v, pos, unit, now, now_f, tat, tat_f)
  local function plus(a, a_f, b, b_f)
    a, a_f = a + b, a_f + b_f
    if a_f >= unit then
      a, a_f = a + 1, a_f - unit
    end
    -- More than can be counted is as good as the most.
    return math.min(a, 9e15), a_f
  end
  local function minus(a, a_f, b, b_f)
    a, a_f = a - b, a_f - b_f
    if a_f < 0 then
      a, a_f = a - 1, a_f + unit
    end
    return a, a_f
  end
  local function latest(a, a_f, b, b_f)
    if a > b or a == b and a_f > b_f then
      return a, a_f
    end
    return b, b_f
  end
  local count, floor, floor_f = struct.unpack('<ddd', v, pos)
  local out, total, total_f = {}, 0, 0
  for i = 1, count do
    local expires, nanos, _, units, units_f = struct.unpack('<ddddd', v, pos + 56 * i - 32)
    out[i] = {expires, nanos * (unit / 1000), units, units_f}
    total, total_f = plus(total, total_f, units, units_f)
  end
  -- Lease by lease in the order in which they end.
  local ended = 0
  while ended < count do
    local lease = out[ended + 1]
    local expires, expires_f = lease[1], lease[2]
    if expires > now or expires == now and expires_f > now_f then
      break
    end
    local least, least_f = plus(expires, expires_f, total, total_f)
    tat, tat_f = latest(tat, tat_f, least, least_f)
    floor, floor_f = latest(floor, floor_f, least, least_f)
    total, total_f = minus(total, total_f, lease[3], lease[4])
    ended = ended + 1
  end
  local least, least_f = 0, 0
  if ended < count then
    least, least_f = plus(now, now_f, total, total_f)
    tat, tat_f = latest(tat, tat_f, least, least_f)
  end
  local ends = 0
  for i = ended + 1, count do
    local lease = out[i]
    local full = plus(lease[1], lease[2], total, total_f)
    ends = math.max(ends, full + 2)
    total, total_f = minus(total, total_f, lease[3], lease[4])
  end
  local left = ''
  if ended < count or floor > now or floor == now and floor_f > now_f then
    local first, last = pos + 24 + 56 * ended, pos + 23 + 56 * count
    left = struct.pack('<ddd', count - ended, floor, floor_f) .. string.sub(v, first, last)
  end
  return tat, tat_f, left, ends, least, least_f
end

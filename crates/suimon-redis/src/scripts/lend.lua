-- Lending, and taking back. `leases.lua` comes before it.

-- The leases of a limit: how many, the floor, and the entries of 56 bytes.
local function leases_of(l)
  if l.leases == '' then
    return 0, 0, 0, ''
  end
  local count, floor, floor_f = unpack('<ddd', l.leases)
  return count, floor, floor_f, sub(l.leases, 25)
end

-- Counts what is given back. Where that cannot be counted any more another epoch begins: what was
-- booked before gets nothing.
local function count_back(l, back, back_f)
  if l.back + back >= MOST then
    l.back, l.back_f, l.is_over = 0, 0, true
  else
    l.back, l.back_f = sum(l.back, l.back_f, back, back_f, l.unit)
  end
end

-- How much is lent: all that is wanted, or a quarter of the whole tokens that there are, but never
-- less than the least. In units, and in billionths of a token.
local function grant(l)
  local now_f = now_n * (l.unit / 1000)
  local left, left_f = sum(now, now_f, l.slack, l.slack_f, l.unit)
  left, left_f = sum(left, left_f, l.cost, l.cost_f, l.unit)
  if later(l.tat, l.tat_f, now, now_f) then
    left, left_f = difference(left, left_f, l.tat, l.tat_f, l.unit)
  else
    left, left_f = difference(left, left_f, now, now_f, l.unit)
  end
  -- Long division: four tokens, doubled until they are more than there is, then taken away again.
  local step, steps = {l.four, l.four_f, l.token, l.token_f, 0, 1000000000}, {}
  while not later(step[1], step[2], left, left_f) do
    steps[#steps + 1] = step
    local a, a_f = sum(step[1], step[2], step[1], step[2], l.unit)
    local b, b_f = sum(step[3], step[4], step[3], step[4], l.unit)
    local c, c_f = sum(step[5], step[6], step[5], step[6], HALF)
    step = {a, a_f, b, b_f, c, c_f}
  end
  local units, units_f, cost, cost_f = 0, 0, 0, 0
  for i = #steps, 1, -1 do
    step = steps[i]
    if not later(step[1], step[2], left, left_f) then
      left, left_f = difference(left, left_f, step[1], step[2], l.unit)
      units, units_f = sum(units, units_f, step[3], step[4], l.unit)
      cost, cost_f = sum(cost, cost_f, step[5], step[6], HALF)
    end
  end
  if later(l.least, l.least_f, cost, cost_f) then
    units, units_f, cost, cost_f = l.cost, l.cost_f, l.least, l.least_f
  end
  if later(cost, cost_f, l.want, l.want_f) then
    units, units_f, cost, cost_f = l.all, l.all_f, l.want, l.want_f
  end
  return units, units_f, cost, cost_f
end

-- Charges a lease and remembers it. Returns what the borrower is told.
local function lend(l)
  local units, units_f, cost, cost_f = grant(l)
  local expires, expires_n = sum(now, now_n, l.lifetime, l.lifetime_n, 1000)
  expires = math.min(expires, MOST)
  local count, floor, floor_f, entries = leases_of(l)
  -- A number that none has that is out, nor had before.
  local number, before = now, 0
  for i = 0, count - 1 do
    local other, other_n, taken = unpack('<ddd', entries, 56 * i + 1)
    number = math.max(number, taken + 1)
    if not later(other, other_n, expires, expires_n) then
      before = i + 1
    end
  end
  if later(units, units_f, 0, 0) then
    local now_f = now_n * (l.unit / 1000)
    if later(now, now_f, l.tat, l.tat_f) then
      l.tat, l.tat_f = now, now_f
    end
    l.tat, l.tat_f = sum(l.tat, l.tat_f, units, units_f, l.unit)
    local entry = pack('<ddddddd', expires, expires_n, number, units, units_f, cost, cost_f)
    entries = sub(entries, 1, 56 * before) .. entry .. sub(entries, 56 * before + 1)
    l.leases = pack('<ddd', count + 1, floor, floor_f) .. entries
  end
  return pack('<ddddd', number, expires, expires_n, cost, cost_f)
end

-- Ends a lease, if it has not ended yet, and puts back what was not spent.
local function take_back(l)
  local count, floor, floor_f, entries = leases_of(l)
  for i = 0, count - 1 do
    local expires, expires_n, number = unpack('<ddd', entries, 56 * i + 1)
    if number == l.number and expires == l.at and expires_n == l.at_n then
      l.tat, l.tat_f = difference(l.tat, l.tat_f, l.cost, l.cost_f, l.unit)
      count_back(l, l.cost, l.cost_f)
      local low, low_f = difference(l.low, l.low_f, l.cost, l.cost_f, l.unit)
      if later(low, low_f, floor, floor_f) then
        floor, floor_f = low, low_f
      end
      entries = sub(entries, 1, 56 * i) .. sub(entries, 56 * i + 57)
      l.leases = pack('<ddd', count - 1, floor, floor_f) .. entries
      return true
    end
  end
  return false
end

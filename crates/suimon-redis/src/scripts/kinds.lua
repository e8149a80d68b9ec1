-- The first half of `decide.lua`: numbers, windows, fixed windows.
--
-- An instant is a pair: whole microseconds, and a rest in units below `base`. A cost is a
-- pair as well, in billionths of a token to the base 2^47. All of these are whole numbers
-- below 2^53, so no sum and no comparison is ever rounded.
local call, pack, unpack, sub = redis.call, struct.pack, struct.unpack, string.sub
local ALLOW, RESERVE, ADOPT, SETTLE, LEASE = 1, 2, 3, 4, 5
local GCRA, WINDOW, FIXED, BLOCK = 1, 2, 3, 5
local CHARGES, GIVES_BACK, RETURNS, NOTHING = 0, 1, 2, 3
local HALF = 140737488355328
local MOST = 9e15

-- The time of the decision.
local now, now_n

local function later(a, a_f, b, b_f)
  return a > b or a == b and a_f > b_f
end

local function sum(a, a_f, b, b_f, base)
  a, a_f = a + b, a_f + b_f
  if a_f >= base then
    return a + 1, a_f - base
  end
  return a, a_f
end

local function difference(a, a_f, b, b_f, base)
  a, a_f = a - b, a_f - b_f
  if a_f < 0 then
    return a - 1, a_f + base
  end
  return a, a_f
end

-- Windows: a log of entries of 32 bytes, and its sum.

local function entry(l, i)
  return unpack('<dddd', l.log, i * 32 + 1)
end

local function forget(l, at, at_n)
  local over = 0
  while over < l.count do
    local from, from_n, cost, cost_f = entry(l, over)
    from, from_n = sum(from, from_n, l.period, l.period_n, 1000)
    if later(from, from_n, at, at_n) then
      break
    end
    l.used, l.used_f = difference(l.used, l.used_f, cost, cost_f, HALF)
    over = over + 1
  end
  if over > 0 then
    l.log, l.count = sub(l.log, over * 32 + 1), l.count - over
  end
end

-- Time does not run back within a log.
local function not_before(l, at, at_n)
  if l.count > 0 then
    local last, last_n = entry(l, l.count - 1)
    if later(last, last_n, at, at_n) then
      return last, last_n
    end
  end
  return at, at_n
end

local function window_ready(l)
  local at, at_n = not_before(l, now, now_n)
  forget(l, at, at_n)
  local excess, excess_f = sum(l.used, l.used_f, l.cost, l.cost_f, HALF)
  excess, excess_f = difference(excess, excess_f, l.limit, l.limit_f, HALF)
  local i = 0
  while i < l.count and later(excess, excess_f, 0, 0) do
    local from, from_n, cost, cost_f = entry(l, i)
    at, at_n = sum(from, from_n, l.period, l.period_n, 1000)
    excess, excess_f = difference(excess, excess_f, cost, cost_f, HALF)
    i = i + 1
  end
  return at, at_n
end

local function window_charge(l, at, at_n)
  at, at_n = not_before(l, at, at_n)
  forget(l, at, at_n)
  local cost, cost_f = l.cost, l.cost_f
  if l.count > 0 then
    local last, last_n, used, used_f = entry(l, l.count - 1)
    local is_same = last == at and last_n == at_n
    -- One of which all was given back only held its place in time.
    if is_same or used == 0 and used_f == 0 then
      l.log, l.count = sub(l.log, 1, -33), l.count - 1
      cost, cost_f = sum(cost, cost_f, used, used_f, HALF)
    end
  end
  l.log, l.count = l.log .. pack('<dddd', at, at_n, cost, cost_f), l.count + 1
  l.used, l.used_f = sum(l.used, l.used_f, l.cost, l.cost_f, HALF)
end

local function window_give_back(l)
  for i = l.count - 1, 0, -1 do
    local at, at_n, cost, cost_f = entry(l, i)
    if later(l.at, l.at_n, at, at_n) then
      return
    end
    if at == l.at and at_n == l.at_n then
      local less, less_f = l.cost, l.cost_f
      if later(less, less_f, cost, cost_f) then
        less, less_f = cost, cost_f
      end
      cost, cost_f = difference(cost, cost_f, less, less_f, HALF)
      local kept = pack('<dddd', at, at_n, cost, cost_f)
      -- The last one holds the place in time.
      if cost == 0 and cost_f == 0 and i + 1 < l.count then
        kept, l.count = '', l.count - 1
      end
      l.log = sub(l.log, 1, i * 32) .. kept .. sub(l.log, i * 32 + 33)
      l.used, l.used_f = difference(l.used, l.used_f, less, less_f, HALF)
      return
    end
  end
end

-- Fixed windows: the latest one in which anything passed.

local missing, missing_n

local function fixed_at(l, at, at_n)
  if later(l.stop, l.stop_n, at, at_n) then
    return
  end
  l.used, l.used_f = 0, 0
  if l.length > 0 then
    l.start, l.start_n = at - at % l.length, 0
    l.stop, l.stop_n = l.start + l.length, 0
    return
  end
  for i = 0, l.spans - 1 do
    local start, start_n, stop, stop_n = unpack('<dddd', l.blob, l.first + i * 32)
    if not later(start, start_n, at, at_n) and later(stop, stop_n, at, at_n) then
      l.start, l.start_n, l.stop, l.stop_n = start, start_n, stop, stop_n
      return
    end
  end
  missing, missing_n = at, at_n
end

local function fixed_give_back(l)
  if not later(l.start, l.start_n, l.at, l.at_n) and later(l.stop, l.stop_n, l.at, l.at_n) then
    l.used, l.used_f = difference(l.used, l.used_f, l.cost, l.cost_f, HALF)
    if l.used < 0 then
      l.used, l.used_f = 0, 0
    end
  end
end

local function fixed_ready(l)
  if not later(l.stop, l.stop_n, now, now_n) then
    return now, now_n
  end
  local wanted, wanted_f = sum(l.used, l.used_f, l.cost, l.cost_f, HALF)
  if later(wanted, wanted_f, l.limit, l.limit_f) then
    return l.stop, l.stop_n
  end
  return l.start, l.start_n
end

-- Several limits, several keys, windows, request ids, changes of limits, leases, settling: one
-- step, all or nothing. `kinds.lua`, `leases.lua` and `lend.lua` come before it. `record.rs` has the layout of a value,
-- `plan.rs` that of the arguments.
local verb, wait, wait_n, lifetime, parts
verb, now, now_n, wait, wait_n, lifetime, parts = unpack('<ddddddd', ARGV[1])
local is_real = now < 0

local id = KEYS[parts + 1]
local said = id and call('GET', id)
if said then
  return 'R' .. said
end

if is_real then
  local t = call('TIME')
  now, now_n = t[1] * 1000000 + t[2], 0
end

-- The values, and whether all of them are under the limits that they are asked about.
local values, found, replaced, epochs = {}, {}, {}, {}
local is_other, seen, seen_n = false, now, now_n
for p = 1, parts do
  local a = 4 * p - 2
  local tag, old = ARGV[a], ARGV[a + 2]
  local does, _, _, _, since = unpack('<ddddd', ARGV[a + 1])
  local v = call('GET', KEYS[p])
  found[p] = v
  if does == NOTHING then
    v = false
  elseif v and old ~= '' and v == old then
    v, replaced[p] = ARGV[a + 3], true
  end
  if v then
    if #v >= 40 + #tag and sub(v, -#tag) == tag then
      local epoch, at, at_n = unpack('<ddd', v, 17)
      epochs[p] = epoch
      if later(at, at_n, seen, seen_n) then
        seen, seen_n = at, at_n
      end
      if does == GIVES_BACK and epoch ~= since then
        -- What was given back since then is not known any more.
        v = false
      end
    else
      is_other = true
    end
  end
  values[p] = v
end
if is_other then
  return {pack('<dd', now, now_n), found}
end
-- The clock of the server may have stepped back.
now, now_n = seen, seen_n
local latest, latest_n = sum(now, now_n, wait, wait_n, 1000)

-- Reads the limits of all parts, each with its state.
local limits, leases, passes = {}, {}, true
for p = 1, parts do
  local blob, v = ARGV[4 * p - 1], values[p]
  local does, is_free, count, _, _, at = unpack('<ddddd', blob)
  local pos, has_leases = 41, v and unpack('<d', v) < 0
  for _ = 1, count do
    local l = {part = p, does = does, is_free = is_free == 1, leases = ''}
    local ready, ready_n = now, now_n
    l.kind, at = unpack('<d', blob, at)
    if l.kind == GCRA then
      l.tat, l.tat_f, l.back, l.back_f = 0, 0, 0, 0
      l.unit, l.cost, l.cost_f, l.slack, l.slack_f, l.spare, l.spare_f, at = unpack('<ddddddd', blob, at)
      if v then
        l.tat, l.tat_f, l.back, l.back_f, pos = unpack('<dddd', v, pos)
      end
      if verb == LEASE then
        l.all, l.all_f, l.want, l.want_f, l.least, l.least_f, at = unpack('<dddddd', blob, at)
        l.four, l.four_f, l.token, l.token_f, l.lifetime, l.lifetime_n, at = unpack('<dddddd', blob, at)
      elseif does == RETURNS and count == 1 then
        l.at, l.at_n, l.number, at = unpack('<ddd', blob, at)
      end
      if has_leases and count == 1 then
        local now_f = now_n * (l.unit / 1000)
        l.tat, l.tat_f, l.leases, l.ends, l.low, l.low_f = settle_leases(v, pos, l.unit, now, now_f, l.tat, l.tat_f)
      end
      if not l.is_free and not (verb == LEASE and l.cost == 0 and l.cost_f == 0) then
        local last, last_f = sum(now, now_n * (l.unit / 1000), l.slack, l.slack_f, l.unit)
        if later(l.tat, l.tat_f, last, last_f) then
          passes = false
        elseif verb == RESERVE then
          local r, r_f = difference(l.tat, l.tat_f, l.spare, l.spare_f, l.unit)
          local nano = l.unit / 1000
          local rest = r_f % nano
          ready, ready_n = r, (r_f - rest) / nano
          if rest > 0 then
            ready, ready_n = sum(ready, ready_n, 0, 1, 1000)
          end
        end
      end
    elseif l.kind == WINDOW then
      l.count, l.used, l.used_f, l.log = 0, 0, 0, ''
      l.limit, l.limit_f, l.cost, l.cost_f, l.period, l.period_n, l.at, l.at_n, at = unpack('<dddddddd', blob, at)
      if v then
        l.count, l.used, l.used_f, pos = unpack('<ddd', v, pos)
        l.log = sub(v, pos, pos + l.count * 32 - 1)
        pos = pos + l.count * 32
      end
      if does == CHARGES then
        ready, ready_n = window_ready(l)
        l.ready, l.ready_n = ready, ready_n
      end
    elseif l.kind == FIXED then
      l.start, l.start_n, l.stop, l.stop_n, l.used, l.used_f = 0, 0, 0, 0, 0, 0
      l.limit, l.limit_f, l.cost, l.cost_f, l.at, l.at_n, l.length, l.spans, at = unpack('<dddddddd', blob, at)
      l.blob, l.first, at = blob, at, at + l.spans * 32
      if v then
        l.start, l.start_n, l.stop, l.stop_n, l.used, l.used_f, pos = unpack('<dddddd', v, pos)
      end
      ready, ready_n = fixed_ready(l)
    elseif l.kind == BLOCK then
      passes = passes and verb == SETTLE
    end
    if l.is_free or not later(ready, ready_n, now, now_n) then
      ready, ready_n = now, now_n
    elseif later(ready, ready_n, latest, latest_n) then
      passes = false
    end
    l.begin, l.begin_n = ready, ready_n
    limits[#limits + 1] = l
  end
  -- Those of a bucket that has become something else stay as they are.
  leases[p] = has_leases and not limits[#limits].low and sub(v, pos, -1 - #ARGV[4 * p - 2]) or ''
end

-- Charges them, for a start at which all are ready.
local start, start_n = now, now_n
local charges = verb == SETTLE or passes and (verb == ALLOW or verb == RESERVE or verb == LEASE)
local booked = ''
if charges then
  if verb == RESERVE then
    for _, l in ipairs(limits) do
      if later(l.begin, l.begin_n, start, start_n) then
        start, start_n = l.begin, l.begin_n
      end
    end
  end
  if start > MOST then
    return 'F'
  end
  for _, l in ipairs(limits) do
    if verb == LEASE then
      booked = lend(l)
      if l.tat > MOST then
        return 'F'
      end
    elseif l.is_free or l.does == NOTHING then
      -- A cost of zero changes nothing.
    elseif l.does == RETURNS then
      l.changes = l.leases ~= '' and take_back(l)
    elseif l.does == GIVES_BACK then
      if not values[l.part] then
        -- All of it has come back, or it is not known how much of it.
      elseif l.kind == GCRA then
        -- `slack` is the arrival right after the booking, `spare` what had been given back before.
        local since, since_f = difference(l.back, l.back_f, l.spare, l.spare_f, l.unit)
        local most, most_f = difference(l.slack, l.slack_f, since, since_f, l.unit)
        local low, low_f = now, now_n * (l.unit / 1000)
        if l.leases ~= '' then
          local _, floor, floor_f = leases_of(l)
          if later(floor, floor_f, low, low_f) then
            low, low_f = floor, floor_f
          end
          if later(l.low, l.low_f, low, low_f) then
            low, low_f = l.low, l.low_f
          end
        end
        most, most_f = difference(most, most_f, low, low_f, l.unit)
        if most >= 0 then
          if later(most, most_f, l.cost, l.cost_f) then
            most, most_f = l.cost, l.cost_f
          end
          l.tat, l.tat_f = difference(l.tat, l.tat_f, most, most_f, l.unit)
          count_back(l, most, most_f)
        end
      elseif l.kind == WINDOW then
        window_give_back(l)
      elseif l.kind == FIXED then
        fixed_give_back(l)
      end
    elseif l.kind == GCRA then
      -- Whoever is the reason for the wait is booked to the unit: rounding its start would add up.
      local is_last = later(start, start_n, now, now_n) and l.begin == start and l.begin_n == start_n
      local start_f = start_n * (l.unit / 1000)
      if not is_last and later(start, start_f, l.tat, l.tat_f) then
        l.tat, l.tat_f = start, start_f
      end
      l.tat, l.tat_f = sum(l.tat, l.tat_f, l.cost, l.cost_f, l.unit)
      if l.tat > MOST then
        if verb ~= SETTLE then
          return 'F'
        end
        l.tat = MOST
      end
    elseif l.kind == WINDOW then
      window_charge(l, start, start_n)
    elseif l.kind == FIXED then
      fixed_at(l, start, start_n)
      l.used, l.used_f = sum(l.used, l.used_f, l.cost, l.cost_f, HALF)
    end
  end
  if missing then
    return 'N' .. pack('<dd', missing, missing_n)
  end
end

-- What is told of each limit, what is kept, and when it is as good as new.
local told, kept, fresh = {}, {}, {}
for p = 1, parts do
  kept[p], fresh[p], epochs[p] = {}, now, epochs[p] or now
  if #leases[p] > 24 then
    fresh[p] = math.max(now, unpack('<d', leases[p], #leases[p] - 55) + 1)
  end
end
for i, l in ipairs(limits) do
  local state, digest, free = '', nil, now
  if l.kind == GCRA then
    state = pack('<dddd', l.tat, l.tat_f, l.back, l.back_f)
    free = l.tat + 2
    if l.is_over then
      epochs[l.part] = math.max(now, epochs[l.part] + 1)
    end
    if l.low or verb == LEASE then
      leases[l.part] = l.leases
      if l.leases ~= '' then
        local _, _, left, ends = settle_leases(l.leases, 1, l.unit, now, now_n * (l.unit / 1000), l.tat, l.tat_f)
        leases[l.part], free = left, math.max(free, ends)
      end
    end
  elseif l.kind == WINDOW then
    state = pack('<ddd', l.count, l.used, l.used_f) .. l.log
    local last, last_n, full, full_n = -1, 0, -1, 0
    if l.count > 0 then
      local cost, cost_f
      last, last_n, cost, cost_f = entry(l, l.count - 1)
      free = last
      if cost > 0 or cost_f > 0 then
        full, full_n = last, last_n
      elseif l.count > 1 then
        full, full_n = entry(l, l.count - 2)
      end
      if full >= 0 then
        free = full + l.period + 2
      end
    end
    digest = pack('<dddddddd', last, last_n, full, full_n, l.used, l.used_f, l.ready or 0, l.ready_n or 0)
  elseif l.kind == FIXED then
    state = pack('<dddddd', l.start, l.start_n, l.stop, l.stop_n, l.used, l.used_f)
    free = (l.used > 0 or l.used_f > 0) and l.stop + 1 or l.start + 1
  end
  told[i] = digest or state
  local keeps = kept[l.part]
  keeps[#keeps + 1] = state
  fresh[l.part] = math.max(fresh[l.part], free)
end

for p = 1, parts do
  local a = 4 * p - 2
  local does, is_free = unpack('<dd', ARGV[a + 1])
  local changes = charges and is_free == 0 and (does == CHARGES or values[p])
  if changes or replaced[p] and (charges or verb == ADOPT) then
    -- What is as good as new need not be kept.
    if found[p] or fresh[p] > now then
      local expiry, how, ms = fresh[p] + 1000000, 'PXAT', 0
      if is_real then
        ms = math.floor(expiry / 1000)
      else
        -- A test's own time: it has nothing to do with the server's.
        expiry, how, ms = 0, 'PX', math.ceil((fresh[p] - now) / 1000) + 600000
      end
      local is = unpack('<d', ARGV[a + 1], 25)
      if leases[p] ~= '' then
        is = -is
      end
      local value = pack('<ddddd', is, expiry, epochs[p], now, now_n) .. table.concat(kept[p]) .. leases[p] .. ARGV[a]
      call('SET', KEYS[p], value, how, ms)
    end
  elseif values[p] and call('PTTL', KEYS[p]) == -1 then
    -- Somebody has taken its expiry away.
    call('PEXPIRE', KEYS[p], math.ceil(math.max(fresh[p] - now, 0) / 1000) + 1000)
  end
end

if verb == RESERVE then
  for p = 1, parts do
    booked = booked .. pack('<d', epochs[p])
  end
end
local answer = (passes and 'A' or 'D') .. pack('<dddd', now, now_n, start, start_n) .. table.concat(told) .. booked
if id then
  -- With it, what was asked: so it can be read by whoever asks again.
  call('SET', id, pack('<I4', #answer) .. answer .. ARGV[4 * parts + 2], 'PX', lifetime)
end
return answer

-- Put before each of the scripts: the arithmetic of window.py and booking.py on Redis. Times are server milliseconds, which Lua's numbers
-- and cjson's fourteen digits hold exactly; microseconds would not fit.
--
-- A window is a hash of amounts by slot number, counted from the epoch, so a slot never comes back. Turns at once are a sorted set of hold
-- ids by the end of their lease. A hold is a hash: `bounds` and `books` as JSON, `counted`, and `final` once it is settled. Whatever is
-- written gets its expiry in the same script.
--
-- KEYS: 1 the hold (a common prefix of all holds in renew and reap), 2 the leases of all holds. Counters are named by the bounds; all keys
-- share one hash tag, since a decision about all of them must be one.

local TURN_RETRY_MS = 1000

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- amounts: {requests, input tokens, output tokens, micros}
local function amount_of(metric, amounts)
  if metric == 'requests' then return amounts[1] end
  if metric == 'input_tokens' then return amounts[2] end
  if metric == 'output_tokens' then return amounts[3] end
  if metric == 'tokens' then return amounts[2] + amounts[3] end
  if metric == 'micros' then return amounts[4] end
  return 0
end

local function oldest_slot(bound, now)
  return math.floor(now / bound.slot_ms) - bound.slots
end

-- The sum of a window and its slots; those that count no more are deleted.
local function read_window(bound, now)
  local oldest, used, slots = oldest_slot(bound, now), 0, {}
  local flat = redis.call('HGETALL', bound.key)
  for i = 1, #flat, 2 do
    local slot, amount = tonumber(flat[i]), tonumber(flat[i + 1])
    if slot < oldest then
      redis.call('HDEL', bound.key, flat[i])
    else
      used = used + amount
      slots[#slots + 1] = {slot, amount}
    end
  end
  return used, slots
end

local function count_turns(bound, now)
  redis.call('ZREMRANGEBYSCORE', bound.key, '-inf', now)
  return redis.call('ZCARD', bound.key)
end

-- 0 is now, -1 is never.
local function window_wait_ms(bound, ask, now)
  if ask > bound.limit then return -1 end
  local used, slots = read_window(bound, now)
  bound.used = used
  if used + ask <= bound.limit then return 0 end
  table.sort(slots, function(a, b) return a[1] < b[1] end)
  for _, slot in ipairs(slots) do
    used = used - slot[2]
    if used + ask <= bound.limit then
      return (slot[1] + bound.slots + 1) * bound.slot_ms - now
    end
  end
  error('an empty window takes whatever is within the limit')
end

local function wait_ms(bound, amounts, turns, now)
  if bound.metric == 'turns' then
    bound.used = count_turns(bound, now)
    if turns == 0 then return 0 end
    if bound.limit == 0 then return -1 end
    return bound.used < bound.limit and 0 or TURN_RETRY_MS
  end
  local ask = amount_of(bound.metric, amounts)
  local wait = window_wait_ms(bound, ask, now)
  return ask == 0 and 0 or wait
end

-- One string is read faster by the client than many integers.
local function encode(numbers)
  for i, number in ipairs(numbers) do numbers[i] = string.format('%.0f', number) end
  return table.concat(numbers, ' ')
end

-- {0, place of the bound that refuses longest, its wait}, or nil when all grant.
local function find_refusal(bounds, amounts, turns, now)
  local worst, place = 0, nil
  for i, bound in ipairs(bounds) do
    local wait = wait_ms(bound, amounts, turns, now)
    if wait == -1 then return {0, i, -1} end
    if wait > worst then worst, place = wait, i end
  end
  return place and {0, place, worst}
end

-- {1, what each bound has left}, after find_refusal has read them and the amounts are booked.
local function grant(bounds, amounts, turns)
  local reply = {1}
  for _, bound in ipairs(bounds) do
    local more = bound.metric == 'turns' and turns or amount_of(bound.metric, amounts)
    reply[#reply + 1] = math.max(0, bound.limit - bound.used - more)
  end
  return reply
end

-- at: the moment whose slot the amounts belong to; one that counts no more is left alone.
local function book(bounds, at, amounts, now)
  for _, bound in ipairs(bounds) do
    local amount = amount_of(bound.metric, amounts)
    if amount ~= 0 then
      local slot = math.floor(at / bound.slot_ms)
      if slot >= oldest_slot(bound, now) then
        -- A slot that is new outlives all the others.
        if redis.call('HINCRBY', bound.key, slot, amount) == amount then
          redis.call('PEXPIRE', bound.key, (bound.slots + 2) * bound.slot_ms)
        end
      end
    end
  end
end

local function lease(hold_key, hold_id, bounds, lease_ms, ttl_ms, now)
  redis.call('PEXPIRE', hold_key, ttl_ms)
  redis.call('ZADD', KEYS[2], now + lease_ms, hold_id)
  redis.call('PEXPIRE', KEYS[2], ttl_ms)
  for _, bound in ipairs(bounds) do
    if bound.metric == 'turns' then
      redis.call('ZADD', bound.key, now + lease_ms, hold_id)
      redis.call('PEXPIRE', bound.key, ttl_ms)
    end
  end
end

local function release(hold_id, bounds)
  redis.call('ZREM', KEYS[2], hold_id)
  for _, bound in ipairs(bounds) do
    if bound.metric == 'turns' then redis.call('ZREM', bound.key, hold_id) end
  end
end

-- Makes the books sum to `actual`: too much goes back where it was booked, the latest first; what lacks is booked now.
local function bring_to(bounds, books, actual, now)
  local excess = {-actual[1], -actual[2], -actual[3], -actual[4]}
  for _, entry in ipairs(books) do
    for i = 1, 4 do excess[i] = excess[i] + entry[i + 1] end
  end
  for place = #books, 1, -1 do
    local entry, back = books[place], {0, 0, 0, 0}
    for i = 1, 4 do
      local given = math.max(0, math.min(entry[i + 1], excess[i]))
      excess[i] = excess[i] - given
      entry[i + 1] = entry[i + 1] - given
      back[i] = -given
    end
    book(bounds, entry[1], back, now)
  end
  local lacking = {math.max(0, -excess[1]), math.max(0, -excess[2]), math.max(0, -excess[3]), math.max(0, -excess[4])}
  book(bounds, now, lacking, now)
  books[#books + 1] = {now, lacking[1], lacking[2], lacking[3], lacking[4]}
end

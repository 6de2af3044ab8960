-- ARGV: lease ms, offers as JSON (their fields in the order of offer.py). Books the cheapest. Returns {its place, 1 when what this router
-- had booked before is known}.
local known = lease(ARGV[1])
local offers = cjson.decode(ARGV[2])

local fields, booked = {}, {}
for i, offer in ipairs(offers) do
  booked[i] = {0, 0, 0}
  for _, figure in ipairs(FIGURES) do fields[#fields + 1] = offer[1] .. figure end
end
for _, router in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local counts = redis.call('HMGET', router, unpack(fields))
  for i = 1, #offers do
    for figure = 1, 3 do booked[i][figure] = booked[i][figure] + (tonumber(counts[3 * (i - 1) + figure]) or 0) end
  end
end

-- As cost_of in offer.py.
local function cost_of(offer, counts)
  local _, fixed, turn, token, wait, slots, pressure, told_turns, used, total, _, blocks = unpack(offer)
  local turns = math.max(told_turns, counts[1])
  local cost = fixed + turns * turn + counts[2] * token + math.max(0, turns + 1 - slots) * wait
  if total > 0 then
    local share = math.min(0.99, (math.max(used, counts[3]) + blocks) / total)
    cost = cost + pressure * share / (1 - share)
  end
  return cost
end

local best, least = 1, math.huge
for i, offer in ipairs(offers) do
  local cost = cost_of(offer, booked[i])
  if cost < least then best, least = i, cost end
end
book(offers[best][1], {1, offers[best][11], offers[best][12]}, ARGV[1])
return best .. ' ' .. known

-- Put before each of the scripts. What a router has booked is a hash of its own: `<worker>\n<figure>` to a count, figures being turns, new
-- tokens and blocks. A sorted set has the routers' hashes by the end of their lease, in server milliseconds; those whose lease has ended
-- count no more. A router writes only its own hash.
--
-- KEYS: 1 the sorted set, 2 the router's own hash, whose name is the member of the set. All share one hash tag.

local FIGURES = {'\nturns', '\ntokens', '\nblocks'}

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Renews the own lease. Returns whether it was still there: if not, what was booked before is lost.
local function lease(lease_ms)
  local now = now_ms()
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  local known = redis.call('ZSCORE', KEYS[1], KEYS[2]) and 1 or 0
  if known == 0 then redis.call('DEL', KEYS[2]) end
  redis.call('ZADD', KEYS[1], now + lease_ms, KEYS[2])
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, lease_ms) end
  return known
end

local function book(worker, counts, lease_ms)
  for i, figure in ipairs(FIGURES) do
    if counts[i] ~= 0 and redis.call('HINCRBY', KEYS[2], worker .. figure, counts[i]) == 0 then
      redis.call('HDEL', KEYS[2], worker .. figure)
    end
  end
  redis.call('PEXPIRE', KEYS[2], lease_ms)
end

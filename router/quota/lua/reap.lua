-- ARGV: most holds to reap. Holds whose routers are gone come to what was last counted. They are not final: a router that was only cut off
-- settles them yet.
local now = now_ms()
local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, hold_id in ipairs(ended) do
  local hold_key = KEYS[1] .. hold_id
  local hold = redis.call('HMGET', hold_key, 'bounds', 'books', 'counted')
  local bounds = hold[1] and cjson.decode(hold[1]) or {}
  if hold[1] then
    local books = cjson.decode(hold[2])
    bring_to(bounds, books, cjson.decode(hold[3]), now)
    redis.call('HSET', hold_key, 'books', cjson.encode(books))
  end
  release(hold_id, bounds)
end
return encode({#ended})

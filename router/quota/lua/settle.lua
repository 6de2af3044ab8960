-- ARGV: hold id, bounds, actual amounts, ttl ms. A hold that is not there, because Redis lost it or another store granted it, is charged
-- whole. What stays behind is the mark that makes the second call, and a reservation that comes late, do nothing.
local hold_id, bounds, actual = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local now = now_ms()
local hold = redis.call('HMGET', KEYS[1], 'books', 'final')
if hold[2] then return encode({0}) end
bring_to(bounds, hold[1] and cjson.decode(hold[1]) or {}, actual, now)
release(hold_id, bounds)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'final', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return encode({1})

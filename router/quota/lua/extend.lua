-- ARGV: hold id, bounds, amounts to add, amounts counted so far, lease ms, ttl ms. {2}: no such hold, or a settled one.
local hold_id, bounds, more = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local now = now_ms()
local hold = redis.call('HMGET', KEYS[1], 'books', 'final')
if not hold[1] or hold[2] then return encode({2}) end
local refusal = find_refusal(bounds, more, 0, now)
if refusal then return encode(refusal) end
local books = cjson.decode(hold[1])
books[#books + 1] = {now, more[1], more[2], more[3], more[4]}
redis.call('HSET', KEYS[1], 'books', cjson.encode(books), 'counted', ARGV[4])
book(bounds, now, more, now)
lease(KEYS[1], hold_id, bounds, ARGV[5], ARGV[6], now)
return encode(grant(bounds, more, 0))

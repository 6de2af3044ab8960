-- ARGV: hold id, bounds, amounts, amounts counted so far, lease ms, ttl ms. A hold that is there already was granted, and one that is
-- settled needs nothing any more: neither books again. {2}: that was so.
local hold_id, bounds, amounts = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local now = now_ms()
if redis.call('EXISTS', KEYS[1]) == 1 then return encode({2}) end
local refusal = find_refusal(bounds, amounts, 1, now)
if refusal then return encode(refusal) end
local entry = {now, amounts[1], amounts[2], amounts[3], amounts[4]}
redis.call('HSET', KEYS[1], 'bounds', ARGV[2], 'books', cjson.encode({entry}), 'counted', ARGV[4])
book(bounds, now, amounts, now)
lease(KEYS[1], hold_id, bounds, ARGV[5], ARGV[6], now)
return encode(grant(bounds, amounts, 1))

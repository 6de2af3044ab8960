-- ARGV: lease ms, ttl ms, then id and amounts counted so far of each hold whose turn still runs.
local now = now_ms()
for i = 3, #ARGV, 2 do
  local hold_key = KEYS[1] .. ARGV[i]
  local bounds = redis.call('HGET', hold_key, 'bounds')
  if bounds then
    redis.call('HSET', hold_key, 'counted', ARGV[i + 1])
    lease(hold_key, ARGV[i], cjson.decode(bounds), ARGV[1], ARGV[2], now)
  end
end
return encode({(#ARGV - 2) / 2})

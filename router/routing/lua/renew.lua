-- ARGV: lease ms, everything this router has booked as JSON, its name's prefix. It goes into a new hash, and the router's older ones go: what
-- was written to them late counts no more.
for _, router in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if router ~= KEYS[2] and string.sub(router, 1, #ARGV[3]) == ARGV[3] then
    redis.call('ZREM', KEYS[1], router)
    redis.call('DEL', router)
  end
end
lease(ARGV[1])
for worker, counts in pairs(cjson.decode(ARGV[2])) do book(worker, counts, ARGV[1]) end
return '1'

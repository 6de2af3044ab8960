-- This router has nothing booked any more.
redis.call('ZREM', KEYS[1], KEYS[2])
redis.call('DEL', KEYS[2])
return '1'

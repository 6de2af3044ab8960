-- Gives a stream a new home, if it has the one that the writer thinks. KEYS: 1 the stream's description. ARGV: from, to, and what tells this
-- move from others. Gives `ok` or `moved`.
if redis.call('HGET', KEYS[1], 'home') ~= ARGV[1] then return 'moved' end
redis.call('HSET', KEYS[1], 'home', ARGV[2], 'move', ARGV[3])
return 'ok'

-- Writes a stream's news, if it is still at home with the writer. Frames that are there already and progress that is behind are left out, so
-- sending twice or late is harmless. KEYS: 1 the stream's description, 2 its log. ARGV: home, ttl ms, oldest frame to keep, version of the
-- progress, progress, what describes the stream (empty: it is described), number of the first frame, frames...
-- Gives `ok`, `absent` or `moved`.
local home, last, version = unpack(redis.call('HMGET', KEYS[1], 'home', 'last', 'version'))
local number = tonumber(ARGV[7])
if not home then
  if ARGV[6] == '' then return 'absent' end
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'home', ARGV[1], 'about', ARGV[6])
  home, last, version = ARGV[1], number - 1, -1
end
if home ~= ARGV[1] then return 'moved' end
last = math.max(tonumber(last), number - 1) -- home may have dropped frames unwritten, which its caller came back with
for i = 8, #ARGV do
  if number > last then
    redis.call('XADD', KEYS[2], string.format('%.0f-0', number), 'f', ARGV[i])
    last = number
  end
  number = number + 1
end
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[3])
if tonumber(ARGV[4]) > tonumber(version) then
  redis.call('HSET', KEYS[1], 'last', string.format('%.0f', last), 'version', ARGV[4], 'progress', ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 'ok'

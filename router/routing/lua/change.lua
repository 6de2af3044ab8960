-- ARGV: lease ms, changes as JSON: worker to counts, negative ones taken away. Returns {1} when what this router had booked is known; if not,
-- nothing is changed.
local known = lease(ARGV[1])
if known == 1 then
  for worker, counts in pairs(cjson.decode(ARGV[2])) do book(worker, counts, ARGV[1]) end
end
return tostring(known)

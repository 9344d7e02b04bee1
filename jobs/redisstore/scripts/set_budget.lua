-- A.id of a session or a dispatch; A.budget (0 = none).
local function set(key, event)
  if redis.call('EXISTS', key) == 0 then return false end
  redis.call('HSET', key, 'budget', A.budget)
  touch(key, event)
  return true
end
if not set(SESSION .. A.id, 'session') and not set(DISPATCH .. A.id, 'gate') then return fail('not_found') end
return ok()

-- Holder; A.delay (ms), A.reason (JSON), A.account (empty = it waits for the time), A.children (runs whose end it waits for).
-- Answers nothing.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
if get(key, 'stop') ~= '' then return fail('stopped') end
for _, rid in ipairs(A.children) do
  if get(RUN .. rid, 'awaited') ~= '1' or not NEXT[get(RUN .. rid, 'state')] then return fail('inbox') end
end
drop_lease(A.run)
set_state(A.run, 'waiting')
if #A.children > 0 then
  redis.call('HSET', key, 'reason', A.reason, '_children', '1')
  return ok()
end
if A.account == '' then
  redis.call('HSET', key, 'reason', A.reason)
  redis.call('ZADD', DUE, int(NOW + tonumber(A.delay)), 'run:' .. A.run)
  return ok()
end
local function for_key(rid)
  redis.call('HSET', RUN .. rid, 'reason', A.reason, '_account', A.account)
  redis.call('SADD', WAITING .. A.account, rid)
end
for_key(A.run)
local did = get(key, 'dispatch')
if did ~= '' and get(DISPATCH .. did, 'gate') == 'closed' and get(DISPATCH .. did, 'leader') == A.run then
  redis.call('ZREM', DUE, 'gate:' .. did)
  for sibling in siblings(did) do -- they wait for what it waits for
    if can_wake(sibling) then
      set_state(sibling, 'waiting')
      for_key(sibling)
    end
  end
end
return ok()

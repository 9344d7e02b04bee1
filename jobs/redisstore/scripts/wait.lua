-- Holder; A.delay (ms), A.reason (JSON), A.account (empty = it waits for the time). Answers nothing.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
if get(key, 'stop') ~= '' then return fail('stopped') end
drop_lease(A.run)
set_state(A.run, 'waiting')
redis.call('HSET', key, 'reason', A.reason)
if A.account == '' then
  redis.call('ZADD', DUE, int(NOW + tonumber(A.delay)), 'run:' .. A.run)
  return ok()
end
redis.call('HSET', key, '_account', A.account)
redis.call('SADD', WAITING .. A.account, A.run)
local did = get(key, 'dispatch')
if did ~= '' and get(DISPATCH .. did, 'gate') == 'closed' and get(DISPATCH .. did, 'leader') == A.run then
  redis.call('ZREM', DUE, 'gate:' .. did) -- its followers stay parked until it has sent
end
return ok()

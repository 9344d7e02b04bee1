-- Holder; A.delay (ms), A.reason (JSON). Answers nothing.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
if get(key, 'stop') ~= '' then return fail('stopped') end
drop_lease(A.run)
set_state(A.run, 'waiting')
redis.call('HSET', key, 'reason', A.reason)
redis.call('ZADD', DUE, int(NOW + tonumber(A.delay)), 'run:' .. A.run)
return ok()

-- Holder; A.n, A.row; A.reserve; A.limit (ms); A.at_risk; A.account (empty = not told). Answers nothing.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
local sid, did = get(key, 'session'), get(key, 'dispatch')
if get(key, 'stop') ~= '' then return fail('stopped') end
if int((tonumber(get(key, 'requests')) or 0) + 1) ~= A.n then return fail('lease_lost') end

-- Compared as doubles: exact below 2^53 nano-dollars, nine million dollars.
local short = false
local function over(of, reserved)
  local h = redis.call('HMGET', of, 'budget', 'cost', '_below_cost', reserved)
  local budget = tonumber(h[1] or '0') or 0
  local spent = tonumber(h[2] or '0') + tonumber(h[3] or '0') + tonumber(h[4] or '0')
  if budget > 0 and spent + tonumber(A.reserve) > budget then short = true end
end
over(SESSION .. sid, 'reserved')
above(did, function(of) over(of, '_reserved') end)
if short then return fail('budget') end

redis.call('HINCRBY', key, 'requests', 1)
if A.account ~= '' and get(SESSION .. sid, 'account') ~= A.account then
  redis.call('HSET', SESSION .. sid, 'account', A.account)
  touch_session(sid)
end
if A.at_risk == '1' then
  redis.call('HINCRBY', key, 'at_risk', 1)
  redis.call('HINCRBY', SESSION .. sid, 'at_risk', 1)
end
redis.call('HSET', LEDGER .. A.run, A.n, A.row)
redis.call('HSET', OPEN .. A.run, A.n, A.reserve)
reserve(sid, did, A.reserve)
touch_run(A.run)
queue[#queue + 1] = {event = 'request', sid = sid, rid = A.run, object = A.row}
if did ~= '' and get(DISPATCH .. did, 'gate') == 'closed' and get(DISPATCH .. did, 'leader') == A.run then
  -- The limit counts from the leader's first send, not from its retries.
  redis.call('ZADD', DUE, 'NX', int(NOW + tonumber(A.limit)), 'gate:' .. did)
end
return ok()

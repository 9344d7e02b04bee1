-- A.run, A.executor, A.epoch, A.token (token empty = by a person or the API); A.dispatch, A.runs, A.logs (records of each child);
-- A.expect, A.launch; A.hash; A.max_descendants (0 = any); A.deadline (ms from now, 0 = none). Answers created (1 or 0) and wakes.
local did, sid = A.dispatch.id, A.dispatch.session
local key = DISPATCH .. did
local bad
if A.token ~= '' then bad = guard() else bad = replay(key) end
if bad then return bad end

if redis.call('EXISTS', key) == 1 then
  op_key = nil
  if get(key, '_hash') ~= A.hash then return fail('idempotency') end
  for rid in siblings(did) do
    if get(RUN .. rid, 'state') == 'queued' then add_wake(rid) end
  end
  return {'ok', '0', wake_list()}
end
if redis.call('EXISTS', SESSION .. sid) == 0 then return fail('not_found') end
if A.dispatch.parent ~= '' and get(RUN .. A.dispatch.parent, 'stop') ~= '' then return fail('stopped') end
if A.token ~= '' then
  local agent = get(RUN .. A.run, 'agent')
  if get(RUN .. A.run, 'stop') ~= '' then return fail('stopped') end
  if not log_is(sid, agent, A.expect) then return fail('lease_lost') end
end
local had, cap = get(SESSION .. sid, 'descendants'), tonumber(A.max_descendants)
if cap > 0 and (tonumber(had) or 0) + #A.runs > cap then return fail('descendants', had, int(#A.runs), A.max_descendants) end
if A.token ~= '' then
  append_all(sid, get(RUN .. A.run, 'agent'), A.run, A.launch)
  touch_run(A.run)
end
redis.call('HINCRBY', SESSION .. sid, 'descendants', #A.runs)

local ids, closed = {}, A.dispatch.gate == 'closed'
for i, r in ipairs(A.runs) do ids[i] = r.id end
put(key, A.dispatch)
put(key, {runs = table.concat(ids, ' '), remaining = int(#ids), created = NOW_S, _hash = A.hash})
if A.dispatch.parent ~= '' then redis.call('HSET', key, '_above', get(RUN .. A.dispatch.parent, 'dispatch')) end
if A.deadline ~= '0' then
  local at = int(NOW + tonumber(A.deadline))
  redis.call('HSET', key, 'deadline', at)
  redis.call('ZADD', DUE, at, 'deadline:' .. did)
end
if closed then
  redis.call('HSET', key, 'generation', '1', 'leader', ids[1])
  gate_history(did, 'closed', ids[1], 'dispatch')
end
touch_dispatch(did)
for i, r in ipairs(A.runs) do
  r.leader = closed and i == 1 and '1' or '0'
  create_run(r, closed and i > 1 and 'parked' or 'queued')
  for _, record in ipairs(A.logs[i] or {}) do append(sid, r.agent, r.id, record) end
end
return ok('1', wake_list())

-- Holder; A.n, A.row; A.bill (fields to add); A.first; A.inherited, A.inherited_read; A.entries {prefix, used, json};
-- A.warm (JSON or empty); A.expect (empty = no append), A.append. Answers the length of the log.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
local sid, did, agent = get(key, 'session'), get(key, 'dispatch'), get(key, 'agent')
local reserved = redis.call('HGET', OPEN .. A.run, A.n)
if not reserved then return fail('lease_lost') end
if A.expect ~= '' and not log_is(sid, agent, A.expect) then return fail('lease_lost') end

redis.call('HSET', LEDGER .. A.run, A.n, A.row)
redis.call('HDEL', OPEN .. A.run, A.n)
reserve(sid, did, negative(reserved))

local function bill(to, prefix)
  for field, by in pairs(A.bill) do redis.call('HINCRBY', to, prefix .. field, by) end
end
bill(key, '')
bill(SESSION .. sid, '')
if did ~= '' then
  bill(DISPATCH .. did, '')
  spend(did, A.bill.cost or '0')
  if A.first == '1' then bill(DISPATCH .. did, 'first_') end
  touch_dispatch(did)
end
redis.call('HINCRBY', key, 'inherited', A.inherited)
redis.call('HINCRBY', key, 'inherited_read', A.inherited_read)

upsert_entries(sid, A.entries)
if A.warm ~= '' and get(key, 'kind') == 'main' then redis.call('HSET', SESSION .. sid, 'warm', A.warm) end

queue[#queue + 1] = {event = 'request', sid = sid, rid = A.run, object = A.row}
touch_run(A.run)
touch_session(sid)
return ok(append_all(sid, agent, A.run, A.append))

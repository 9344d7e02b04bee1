-- Holder; A.n, A.row; A.entries. Answers wakes.
local bad = guard()
if bad then return bad end
if redis.call('HEXISTS', OPEN .. A.run, A.n) == 0 then return fail('lease_lost') end
local sid, did = get(RUN .. A.run, 'session'), get(RUN .. A.run, 'dispatch')
redis.call('HSET', LEDGER .. A.run, A.n, A.row)
upsert_entries(sid, A.entries)
queue[#queue + 1] = {event = 'request', sid = sid, rid = A.run, object = A.row}
if did ~= '' and get(DISPATCH .. did, 'gate') == 'closed' and get(DISPATCH .. did, 'leader') == A.run then
  open_gate(did, A.run, 'message_start')
end
return ok(wake_list())

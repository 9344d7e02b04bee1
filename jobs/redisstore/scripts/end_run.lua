-- Holder (or a run nobody holds when A.token is empty); A.state, A.reason, A.report; A.candidate, A.title; A.slot. Answers wakes.
local key = RUN .. A.run
if A.token ~= '' then
  local bad = guard()
  if bad then return bad end
else
  local again = replay(key)
  if again then return again end
  local state = get(key, 'state')
  if state == '' then return fail('not_found') end
  if not NEXT[state] or get(key, '_token') ~= '' then return fail('lease_lost') end
end
local from = get(key, 'state')
if not NEXT[from][A.state] then
  return fail('conflict', 'A ' .. from .. ' run cannot become ' .. A.state .. '.', 'Reload to see its present state.')
end
if A.state == 'done' and get(key, 'kind') == 'main' and redis.call('LLEN', INBOX_ORDER .. get(key, 'session')) > 0 then
  return fail('inbox')
end
end_run(A.run, A.state, A.reason, A.report, A.candidate, A.title)
-- Only a main turn that is done has something that side forks may send.
if A.slot ~= '' and A.state == 'done' and get(key, 'kind') == 'main' then
  local session = SESSION .. get(key, 'session')
  redis.call('HSET', session, '_slot', A.slot, '_slot_run', A.run, '_slot_at', NOW_S)
  redis.call('HINCRBY', session, '_slot_version', 1)
end
return ok(wake_list())

-- Holder (or a run nobody holds when A.token is empty); A.state, A.reason, A.report; A.candidate, A.title. Answers wakes.
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
return ok(wake_list())

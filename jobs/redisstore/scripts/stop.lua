-- A.session, A.scope ("turn" or "tree"); A.candidate and its titles (see obey_stop). Answers run ids and wakes.
local sid = A.session
local key = SESSION .. sid
local again = replay(key, '_wish')
if again then return again end
if redis.call('EXISTS', key) == 0 then return fail('not_found') end

local runs = {}
if A.scope == 'tree' then
  runs = redis.call('ZRANGE', ACTIVE .. sid, 0, -1)
elseif get(key, 'active_run') ~= '' then
  local turn = get(key, 'active_run')
  runs = {turn}
  -- What it waits for is part of it.
  for _, rid in ipairs(redis.call('ZRANGE', ACTIVE .. sid, 0, -1)) do
    if get(RUN .. rid, 'parent') == turn and get(RUN .. rid, 'awaited') == '1' then runs[#runs + 1] = rid end
  end
end
-- All wishes first, so that no end below promotes or wakes a run that is to end too.
for _, rid in ipairs(runs) do
  wish_stop(rid, A.scope)
  local did = get(RUN .. rid, 'dispatch')
  if did ~= '' then
    redis.call('HSET', DISPATCH .. did, '_stopped', '1')
    touch(DISPATCH .. did)
  end
end
for _, rid in ipairs(runs) do obey_stop(rid) end
return ok(table.concat(runs, ' '), wake_list())

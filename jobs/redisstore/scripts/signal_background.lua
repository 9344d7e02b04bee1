-- A.run. Answers wakes.
local key = RUN .. A.run
local again = replay(key, '_wish')
if again then return again end
local state = get(key, 'state')
if state == '' then return fail('not_found') end
if not NEXT[state] or get(key, 'background') == '1' then
  return fail('conflict', 'This run is not running in the foreground.', 'It already goes on without you, or has ended.')
end
-- The agents that it waits for go first, so that it wakes once.
for _, rid in ipairs(redis.call('ZRANGE', ACTIVE .. get(key, 'session'), 0, -1)) do
  if get(RUN .. rid, 'parent') == A.run and get(RUN .. rid, 'awaited') == '1' then
    redis.call('HSET', RUN .. rid, 'awaited', '0')
    touch_run(rid)
    if get(RUN .. rid, '_token') ~= '' then signal(rid, 'background') else to_background(rid) end
  end
end
if get(key, '_token') ~= '' then
  detach(A.run)
  signal(A.run, 'background')
elseif get(key, '_children') == '1' then
  requeue(A.run)
else
  to_background(A.run)
end
return ok(wake_list())

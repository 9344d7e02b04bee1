-- A.run. Answers wakes.
local key = RUN .. A.run
local again = replay(key, '_wish')
if again then return again end
local state, stop = get(key, 'state'), get(key, 'stop')
if state == '' then return fail('not_found') end
if NEXT[state] then
  return fail('conflict', 'This run has not ended: it is ' .. state .. '.', 'Wait for its end, or cancel it.')
end
if get(key, 'kind') == 'main' or not RESUMABLE[state] or stop ~= '' and STOP_STATE[stop] ~= state then
  return fail('conflict', 'A run that ended as ' .. state .. ' cannot be resumed.', 'Dispatch its directive again, or send a message.')
end
local sid, did = get(key, 'session'), get(key, 'dispatch')
withdraw_notice(sid, did, A.run)
redis.call('HSET', key, 'ended', '', 'reason', '', 'report', '', 'stop', '', 'awaited', '0', 'resumed', NOW_S)
redis.call('ZADD', ACTIVE .. sid, redis.call('ZSCORE', RUNS .. sid, A.run), A.run)
redis.call('HINCRBY', SESSION .. sid, 'active_runs', 1)
touch_session(sid)
redis.call('HINCRBY', DISPATCH .. did, 'remaining', 1)
redis.call('HSET', DISPATCH .. did, 'ended', '', '_stopped', '')
local deadline = tonumber(get(DISPATCH .. did, 'deadline')) or 0
if deadline > NOW then redis.call('ZADD', DUE, int(deadline), 'deadline:' .. did) end
touch_dispatch(did)
marker(sid, get(key, 'agent'), A.run, '{"type":"resumed"}')
set_state(A.run, 'queued')
return ok(wake_list())

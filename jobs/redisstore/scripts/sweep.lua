-- A.dead, A.redue (ms), A.batch; A.candidate and its titles (see obey_stop). Answers wakes.
local beats = redis.call('HGETALL', BEATS)
for i = 1, #beats, 2 do
  local executor = beats[i]
  if NOW - tonumber(beats[i + 1]) > tonumber(A.dead) then
    for _, rid in ipairs(redis.call('SMEMBERS', HELD .. executor)) do
      local h = redis.call('HMGET', RUN .. rid, 'state', '_executor')
      if h[1] == 'running' and h[2] == executor then requeue(rid) end
    end
    redis.call('DEL', HELD .. executor, SIGNALS .. executor, SENT .. executor)
    redis.call('HDEL', BEATS, executor)
  end
end

local late = false
for _, member in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', NOW_S, 'LIMIT', 0, A.batch)) do
  local what, id = string.match(member, '^(%a+):(.*)$')
  local state = what == 'run' and get(RUN .. id, 'state')
  if state == 'queued' then
    add_wake(id)
  elseif state == 'waiting' then
    requeue(id)
  elseif what == 'deadline' then
    -- One in a sweep: its end may start a turn, and there is one candidate.
    if get(DISPATCH .. id, 'remaining') == '0' then
      redis.call('ZREM', DUE, member)
    elseif not late then
      late = true
      for rid in siblings(id) do
        if NEXT[get(RUN .. rid, 'state')] then wish_stop(rid, 'deadline') end
      end
      for rid in siblings(id) do
        if get(RUN .. rid, 'stop') == 'deadline' then obey_stop(rid) end
      end
      redis.call('ZREM', DUE, member)
    end
  elseif what == 'gate' and get(DISPATCH .. id, 'gate') == 'closed' then
    open_gate(id, get(DISPATCH .. id, 'leader'), 'limit')
  else
    redis.call('ZREM', DUE, member)
  end
end
for _, wake in ipairs(wakes) do
  redis.call('ZADD', DUE, int(NOW + tonumber(A.redue)), 'run:' .. string.match(wake, '^[^.]+'))
end
return ok(wake_list())

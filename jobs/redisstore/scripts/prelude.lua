-- Shared by all scripts of a shard. Go puts generated lines in front: the key
-- stems of keys.go with the shard's tag, NEXT (the transition table of runs that have not ended), RESUMABLE (ends that
-- may be queued again), STOPPED and STOP_STATE (reasons as JSON and end states, by wish), GRACE and LIVE_MAX.
--
-- KEYS[1] routes the call to the shard; ARGV is tag, op (names this very
-- step), arguments as one JSON object. All numbers in it are strings: they go
-- through HINCRBY or comparisons, never through arithmetic that could round.
--
-- A script checks everything first, then changes, then returns ok(...).
-- Objects are put into events as they are at the end of the step.

local OP, A = ARGV[2], cjson.decode(ARGV[3])

local function int(n) return string.format('%.0f', n) end

local clock = redis.call('TIME')
local NOW_US = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local NOW = math.floor(NOW_US / 1000)
local NOW_S = int(NOW)

local function get(key, field) return redis.call('HGET', key, field) or '' end

local function put(key, fields)
  for field, value in pairs(fields) do redis.call('HSET', key, field, value) end
end

local function fail(code, ...) return {'err', code, ...} end

local function log_key(sid, agent) return LOG .. sid .. ':' .. agent end

-- Events and versions ------------------------------------------------------

local queue, queued, changed, wakes = {}, {}, {}, {}
-- Where this step is noted for a repeat: a hash and the first part of its fields' names.
local op_key, op_kind = nil, ''

-- touch bumps version and updated; with an event type the object is published too.
local function touch(key, event)
  changed[key] = true
  if event and not queued[event .. key] then
    queued[event .. key] = true
    queue[#queue + 1] = {event = event, key = key}
  end
end

local function touch_run(rid) touch(RUN .. rid, 'run') end
local function touch_session(sid) touch(SESSION .. sid, 'session') end
local function touch_dispatch(did) touch(DISPATCH .. did, 'gate') end

-- public is the JSON of a hash without the store's own fields.
local function public(key)
  local flat, h = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do
    if string.sub(flat[i], 1, 1) ~= '_' then h[flat[i]] = flat[i + 1] end
  end
  return cjson.encode(h), h
end

local function flush()
  for key in pairs(changed) do
    redis.call('HINCRBY', key, 'version', 1)
    redis.call('HSET', key, 'updated', NOW_S)
  end
  for _, e in ipairs(queue) do
    local sid, rid, object = e.sid, e.rid, e.object
    if e.key then
      local h
      object, h = public(e.key)
      sid, rid = h.session or h.id, ''
      if e.event == 'run' or e.event == 'notification' then rid = h.id end
    end
    local id = redis.call('XADD', EVENTS .. sid, '*', 'event', e.event, 'run', rid,
      'agent', e.agent or '', 'seq', e.seq or '', 'object', object)
    redis.call('XADD', LIVE, 'MAXLEN', '~', LIVE_MAX, '*', 'id', id, 'session', sid, 'event', e.event,
      'run', rid, 'agent', e.agent or '', 'seq', e.seq or '', 'object', object)
  end
  queue, queued, changed = {}, {}, {}
end

local function ok(...)
  flush()
  local reply = {'ok', ...}
  if op_key then
    redis.call('HSET', op_key, op_kind .. '_op', OP, op_kind .. '_reply', cjson.encode(reply))
  end
  return reply
end

-- replay answers a step that was already done, and remembers where this one is to be noted. Steps of others than
-- the holder have a kind of their own, or the holder could not repeat its last one after theirs.
local function replay(key, kind)
  op_key, op_kind = key, kind or ''
  local last = redis.call('HMGET', key, op_kind .. '_op', op_kind .. '_reply')
  if last[1] == OP then return cjson.decode(last[2]) end
end

local function wake_list() return table.concat(wakes, ' ') end

-- Logs, inbox ---------------------------------------------------------------

-- append adds a record "<ms>:<json>"; time 0 means now.
local function append(sid, agent, rid, record)
  if string.sub(record, 1, 2) == '0:' then record = NOW_S .. string.sub(record, 2) end
  local seq = redis.call('RPUSH', log_key(sid, agent), record)
  queue[#queue + 1] = {event = 'message', sid = sid, rid = rid, agent = agent, seq = int(seq), object = record}
  return seq
end

local function marker(sid, agent, rid, json)
  append(sid, agent, rid, '0:{"kind":"marker","run_id":"' .. rid .. '","marker":' .. json .. '}')
end

-- log_is says whether a log has the length that the caller has replayed.
local function log_is(sid, agent, expect)
  return int(redis.call('LLEN', log_key(sid, agent))) == expect
end

-- append_all adds what the holder of a run wrote; returns the new length.
local function append_all(sid, agent, rid, entries)
  for _, e in ipairs(entries) do
    append(sid, agent, rid, e.record)
    if e.tool then
      redis.call('HINCRBY', RUN .. rid, 'tool_uses', 1)
      redis.call('HSET', RUN .. rid, 'last_tool', e.tool, 'last_tool_detail', e.tool_detail or '')
      touch_run(rid)
    end
  end
  return int(redis.call('LLEN', log_key(sid, agent)))
end

local function inbox_put(sid, item, json)
  if redis.call('HSETNX', INBOX .. sid, item, NOW_S .. ':' .. json) == 1 then
    redis.call('RPUSH', INBOX_ORDER .. sid, item)
  end
end

-- Runs ----------------------------------------------------------------------

-- add_wake answers a queued run's wake with what the ready list wants to know: "<run>.<n>/<session>/<pool>/<class>".
local function add_wake(rid)
  local h = redis.call('HMGET', RUN .. rid, 'wake', 'session', 'kind')
  local s = redis.call('HMGET', SESSION .. h[2], '_pool', 'interactive')
  local class = (h[3] == 'main' or s[2] == '1') and 'i' or 'b'
  wakes[#wakes + 1] = rid .. '.' .. h[1] .. '/' .. h[2] .. '/' .. (s[1] or '') .. '/' .. class
end

local function enqueue(rid)
  redis.call('HINCRBY', RUN .. rid, 'wake', 1)
  redis.call('ZADD', DUE, int(NOW + GRACE), 'run:' .. rid)
  add_wake(rid)
end

-- overdue makes the next sweep hand out the wakes of a step that cannot answer them.
local function overdue()
  for _, w in ipairs(wakes) do
    redis.call('ZADD', DUE, NOW_S, 'run:' .. string.match(w, '^[^.]+'))
  end
end

local function set_state(rid, to)
  local key = RUN .. rid
  local from = get(key, 'state')
  if not (NEXT[from] and NEXT[from][to] or RESUMABLE[from] and to == 'queued') then
    error('run ' .. rid .. ' cannot go from ' .. from .. ' to ' .. to)
  end
  redis.call('HSET', key, 'state', to)
  if from == 'waiting' then
    local account = get(key, '_account')
    if account ~= '' then redis.call('SREM', WAITING .. account, rid) end
    redis.call('HSET', key, 'reason', '', '_account', '', '_children', '')
  end
  touch_run(rid)
  if to == 'queued' then enqueue(rid) else redis.call('ZREM', DUE, 'run:' .. rid) end
end

-- create_run stores a run (fields as in runs.go) in its first state.
local function create_run(r, state)
  local seq = int(redis.call('HINCRBY', SESSION .. r.session, '_runs', 1))
  put(RUN .. r.id, r)
  put(RUN .. r.id, {state = state, created = NOW_S})
  redis.call('ZADD', RUNS .. r.session, seq, r.id)
  redis.call('ZADD', ACTIVE .. r.session, seq, r.id)
  redis.call('HINCRBY', SESSION .. r.session, 'active_runs', 1)
  touch_run(r.id)
  touch_session(r.session)
  if state == 'queued' then enqueue(r.id) end
end

local function start_turn(r, state)
  create_run(r, state)
  redis.call('HSET', SESSION .. r.session, 'active_run', r.id, '_follow', '')
  marker(r.session, r.session, r.id, '{"type":"turn_start"}')
end

-- Leases --------------------------------------------------------------------

local function grant(rid, executor, token)
  local key = RUN .. rid
  redis.call('HINCRBY', key, '_epoch', 1)
  redis.call('HSET', key, '_token', token, '_executor', executor)
  -- What the predecessor did last is not to be answered again.
  redis.call('HDEL', key, '_op', '_reply')
  if get(key, 'started') == '' then redis.call('HSET', key, 'started', NOW_S) end
  redis.call('SADD', HELD .. executor, rid)
  -- An executor that dies before its first beat must be found silent as well.
  redis.call('HSETNX', BEATS, executor, NOW_S)
end

local function drop_lease(rid)
  local executor = get(RUN .. rid, '_executor')
  if executor ~= '' then
    redis.call('SREM', HELD .. executor, rid)
    redis.call('HDEL', SIGNALS .. executor, rid)
  end
  redis.call('HSET', RUN .. rid, '_token', '', '_executor', '')
end

-- guard answers a repeated step, or fails unless the caller holds A.run.
local function guard()
  local key = RUN .. A.run
  local again = replay(key)
  if again then return again end
  local h = redis.call('HMGET', key, 'state', '_token', '_epoch', '_executor')
  if h[1] ~= 'running' or A.token == '' or h[2] ~= A.token or h[3] ~= A.epoch or h[4] ~= A.executor then
    return fail('lease_lost')
  end
end

-- wake_parent lets a run go on that waits for the end of agents, because of what became of one of them.
local function wake_parent(rid)
  local parent = get(RUN .. rid, 'parent')
  if parent ~= '' and get(RUN .. parent, 'state') == 'waiting' and get(RUN .. parent, '_children') == '1' then
    set_state(parent, 'queued')
  end
end

-- detach answers the call that waits for an agent: it will hear of the end later.
local function detach(rid)
  if get(RUN .. rid, 'awaited') ~= '1' then return end
  redis.call('HSET', RUN .. rid, 'awaited', '0')
  touch_run(rid)
  wake_parent(rid)
end

-- to_background notes that a run that nobody holds goes on in a worker.
local function to_background(rid)
  local key = RUN .. rid
  if get(key, 'background') == '1' then return end
  redis.call('HSET', key, 'background', '1')
  marker(get(key, 'session'), get(key, 'agent'), rid, '{"type":"background"}')
  touch_run(rid)
  detach(rid)
end

-- requeue takes the lease away and lets a worker go on from the log.
local function requeue(rid)
  drop_lease(rid)
  set_state(rid, 'queued')
  to_background(rid)
end

local function signal(rid, kind)
  local executor = get(RUN .. rid, '_executor')
  if executor == '' then return end
  if kind == 'stop' or redis.call('HEXISTS', SIGNALS .. executor, rid) == 0 then
    redis.call('HSET', SIGNALS .. executor, rid, kind)
  end
end

-- Money ---------------------------------------------------------------------

-- above calls f with a dispatch and with those whose forks dispatched it, the nearest first.
local function above(did, f)
  while did ~= '' do
    f(DISPATCH .. did)
    did = get(DISPATCH .. did, '_above')
  end
end

-- reserve changes what running requests may still cost, by a signed string.
local function reserve(sid, did, by)
  redis.call('HINCRBY', SESSION .. sid, 'reserved', by)
  touch(SESSION .. sid)
  above(did, function(key)
    redis.call('HINCRBY', key, '_reserved', by)
    touch(key)
  end)
end

-- spend counts a cost to the budgets that a nested dispatch shares.
local function spend(did, cost)
  above(get(DISPATCH .. did, '_above'), function(key) redis.call('HINCRBY', key, '_below_cost', cost) end)
end

local function negative(n) if n == '0' then return n end return '-' .. n end

-- upsert_entries notes what the provider holds: {prefix, used (ms), json}.
-- Siblings settle in any order; the latest use decides how long an entry lives.
local function upsert_entries(sid, entries)
  for _, e in ipairs(entries) do
    local used = string.match(get(ENTRIES .. sid, e.prefix), '^-?%d+')
    if not used or tonumber(used) <= tonumber(e.used) then
      redis.call('HSET', ENTRIES .. sid, e.prefix, e.used .. ':' .. e.json)
    end
  end
end

-- Gates ---------------------------------------------------------------------

local function siblings(did) return string.gmatch(get(DISPATCH .. did, 'runs'), '%S+') end

local function gate_history(did, what, rid, cause)
  local key = DISPATCH .. did
  local line = '{"at":' .. NOW_S .. ',"generation":' .. get(key, 'generation') .. ',"type":"' .. what ..
    '","run_id":"' .. rid .. '","cause":"' .. cause .. '"}'
  local history = get(key, 'history')
  if history ~= '' then line = history .. ',' .. line end
  redis.call('HSET', key, 'history', line)
  touch_dispatch(did)
end

local function can_wake(rid)
  local h = redis.call('HMGET', RUN .. rid, 'state', 'stop')
  return h[1] == 'parked' and (not h[2] or h[2] == '')
end

local function open_gate(did, rid, cause)
  redis.call('HSET', DISPATCH .. did, 'gate', 'open', '_opened', NOW_S, 'cold', '0')
  redis.call('ZREM', DUE, 'gate:' .. did)
  gate_history(did, 'opened', rid, cause)
  for sibling in siblings(did) do
    if can_wake(sibling) then set_state(sibling, 'queued') end
  end
end

local function lead(did, rid)
  redis.call('HSET', DISPATCH .. did, 'leader', rid)
  redis.call('HSET', RUN .. rid, 'leader', '1')
  touch_run(rid)
end

local function promote_leader(did, old)
  redis.call('HSET', RUN .. old, 'leader', '0')
  redis.call('ZREM', DUE, 'gate:' .. did)
  for sibling in siblings(did) do
    if can_wake(sibling) then
      lead(did, sibling)
      set_state(sibling, 'queued')
      gate_history(did, 'promoted', sibling, 'leader_ended')
      return
    end
  end
  open_gate(did, old, 'leader_ended')
  redis.call('HSET', DISPATCH .. did, '_opened', '0') -- nobody wrote anything: who comes next leads again
end

-- Ends ----------------------------------------------------------------------

-- start_candidate starts a turn for what waits in the inbox of an idle session.
local function start_candidate(sid, candidate, title)
  if candidate ~= '' and get(SESSION .. sid, 'active_run') == '' and redis.call('EXISTS', RUN .. candidate) == 0 then
    start_turn({id = candidate, session = sid, agent = sid, kind = 'main', title = title, background = '1'}, 'queued')
  end
end

-- notice names what a run's latest end has to tell: a resumed run tells again.
local function notice(rid) return 'ended_' .. rid .. '.' .. get(RUN .. rid, 'wake') end

-- deliver_notices moves what the children have to tell to the session's inbox
-- and starts a turn when nobody else would read it.
local function deliver_notices(sid, did, candidate, title)
  local any = false
  for rid in string.gmatch(get(DISPATCH .. did, '_notices'), '%S+') do
    inbox_put(sid, notice(rid), '{"kind":"notification","run_id":"' .. rid .. '"}')
    any = true
  end
  redis.call('HSET', DISPATCH .. did, '_notices', '', 'undelivered', '0')
  touch_dispatch(did)
  if any and get(DISPATCH .. did, '_stopped') ~= '1' then start_candidate(sid, candidate, title) end
end

-- withdraw_notice takes back what a run's end had to tell and nobody has read yet.
local function withdraw_notice(sid, did, rid)
  local item, rest = notice(rid), {}
  if redis.call('HDEL', INBOX .. sid, item) == 1 then redis.call('LREM', INBOX_ORDER .. sid, 1, item) end
  for other in string.gmatch(get(DISPATCH .. did, '_notices'), '%S+') do
    if other ~= rid then rest[#rest + 1] = other end
  end
  redis.call('HSET', DISPATCH .. did, '_notices', table.concat(rest, ' '), 'undelivered', int(#rest))
end

local function end_child(sid, did, rid, candidate, title)
  local key = DISPATCH .. did
  queue[#queue + 1] = {event = 'notification', key = RUN .. rid}
  redis.call('HSET', key, '_notices', get(key, '_notices') .. ' ' .. rid)
  redis.call('HINCRBY', key, 'undelivered', 1)
  touch(key)
  local left = redis.call('HINCRBY', key, 'remaining', -1)
  if get(key, 'gate') == 'closed' and get(key, 'leader') == rid then promote_leader(did, rid) end
  if left == 0 then
    redis.call('HSET', key, 'ended', NOW_S)
    redis.call('ZREM', DUE, 'deadline:' .. did)
    touch_dispatch(did)
  end
  local policy = get(key, 'notify')
  if get(RUN .. rid, 'awaited') == '1' then
    deliver_notices(sid, did, '', '')
    wake_parent(rid)
  elseif policy == 'each' or left == 0 and policy ~= 'manual' then deliver_notices(sid, did, candidate, title) end
end

-- rfc3339 writes a time in ms for a row; days to date as in Howard Hinnant's civil_from_days.
local function rfc3339(ms)
  local floor = math.floor
  local days, second = floor(ms / 86400000) + 719468, floor(ms / 1000) % 86400
  local era, day = floor(days / 146097), days % 146097
  local year = floor((day - floor(day / 1460) + floor(day / 36524) - floor(day / 146096)) / 365)
  day = day - (365 * year + floor(year / 4) - floor(year / 100))
  local month = floor((5 * day + 2) / 153) -- from March
  day = day - floor((153 * month + 2) / 5) + 1
  year = year + 400 * era
  if month >= 10 then year = year + 1 end
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, (month + 2) % 12 + 1, day,
    floor(second / 3600), floor(second / 60) % 60, second % 60, ms % 1000)
end

-- USAGE is a usage in a row as Go encodes it, and USAGE_FIELDS are the sums that its numbers go to.
-- A quote inside a string of a row is escaped, so these patterns only match the row's own keys.
local USAGE = '"usage":{"input_tokens":(%d+),"cache_creation_5m_tokens":(%d+),"cache_creation_1h_tokens":(%d+),' ..
  '"cache_read_tokens":(%d+),"output_tokens":(%d+)}'
local USAGE_FIELDS = {'input', 'write_5m', 'write_1h', 'read', 'output'}

-- close_rows removes the reservations of requests whose end nobody will tell. What
-- their first event told is what they used at least; a cost it did not tell is unknown.
local function close_rows(sid, did, rid)
  local open = redis.call('HGETALL', OPEN .. rid)
  for i = 1, #open, 2 do
    local row = get(LEDGER .. rid, open[i])
    local usage, cost = {string.match(row, USAGE)}, string.match(row, '"cost_nanousd":(%d+)')
    local function bill(to)
      for n, by in ipairs(usage) do redis.call('HINCRBY', to, USAGE_FIELDS[n], by) end
      if cost then redis.call('HINCRBY', to, 'cost', cost) else redis.call('HINCRBY', to, 'unpriced', 1) end
    end
    bill(RUN .. rid)
    bill(SESSION .. sid)
    if did ~= '' then
      bill(DISPATCH .. did)
      spend(did, cost or '0')
      touch_dispatch(did)
    end
    reserve(sid, did, negative(open[i + 1]))

    row = string.gsub(row, '"status":"open"', '"status":"aborted"')
    row = string.gsub(row, '"ended_at":null', '"ended_at":"' .. rfc3339(NOW) .. '"')
    row = string.gsub(row, ',"first":true}$', '}') -- as for every aborted request
    if #usage > 0 then row = string.gsub(row, '"usage_estimated":false', '"usage_estimated":true') end
    redis.call('HSET', LEDGER .. rid, open[i], row)
    queue[#queue + 1] = {event = 'request', sid = sid, rid = rid, object = row}
  end
  redis.call('DEL', OPEN .. rid)
end

-- must_follow says whether what waits in the inbox wants a turn after the end of this one: a text that came after its
-- stop wish, or whatever a failed turn left. One that failed before its first request would only fail again.
local function must_follow(sid, rid, state)
  local follow = get(SESSION .. sid, '_follow')
  if follow ~= '' and redis.call('HEXISTS', INBOX .. sid, follow) == 1 then return true end
  return state == 'failed' and (tonumber(get(RUN .. rid, 'requests')) or 0) > 0 and redis.call('LLEN', INBOX_ORDER .. sid) > 0
end

-- end_run ends a run; the caller has checked that its state may become this one.
-- reason and report are JSON or empty.
local function end_run(rid, state, reason, report, candidate, title)
  local key = RUN .. rid
  local sid, kind, did = get(key, 'session'), get(key, 'kind'), get(key, 'dispatch')
  close_rows(sid, did, rid)
  set_state(rid, state)
  redis.call('HSET', key, 'ended', NOW_S, 'reason', reason, 'report', report)
  drop_lease(rid)
  redis.call('ZREM', ACTIVE .. sid, rid)
  redis.call('HINCRBY', SESSION .. sid, 'active_runs', -1)
  touch_session(sid)
  if kind == 'main' then
    local json = '{"type":"turn_end","state":"' .. state .. '"'
    if reason ~= '' then json = json .. ',"reason":' .. reason end
    marker(sid, get(key, 'agent'), rid, json .. '}')
    redis.call('HSET', SESSION .. sid, 'active_run', '', 'last_run', rid, 'last_state', state, 'last_reason', reason)
    if must_follow(sid, rid, state) then start_candidate(sid, candidate, title) end
  else
    end_child(sid, did, rid, candidate, title)
  end
end

-- wish_stop notes a wish; it is one-way and the first one stays.
local function wish_stop(rid, wish)
  if get(RUN .. rid, 'stop') == '' then
    redis.call('HSET', RUN .. rid, 'stop', wish)
    touch_run(rid)
  end
end

-- obey_stop ends a run that nobody executes, and tells the executor otherwise. The turn that this may start is
-- A.candidate, titled A.inbox_title after a main turn and A.reports_title after the last child.
local function obey_stop(rid)
  local state = get(RUN .. rid, 'state')
  if state == 'running' then
    signal(rid, 'stop')
  elseif NEXT[state] then
    local title = get(RUN .. rid, 'kind') == 'main' and A.inbox_title or A.reports_title
    local wish = get(RUN .. rid, 'stop')
    end_run(rid, STOP_STATE[wish], STOPPED[wish], '', A.candidate, title)
  end
end

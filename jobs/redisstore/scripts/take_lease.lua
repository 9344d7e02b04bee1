-- A.run, A.wake, A.executor, A.token, A.foreground (0 or 1), A.ttl (ms an opening is trusted); A.candidate and its titles (see obey_stop).
-- Answers epoch, run, open ledger rows.
local key = RUN .. A.run

local function granted()
  local reply = {'ok', get(key, '_epoch'), (public(key))}
  local open = redis.call('HKEYS', OPEN .. A.run)
  table.sort(open, function(a, b) return tonumber(a) < tonumber(b) end)
  for _, n in ipairs(open) do reply[#reply + 1] = get(LEDGER .. A.run, n) end
  return reply
end

local state = get(key, 'state')
if state == '' then return fail('not_found') end
if state == 'running' and get(key, '_token') == A.token then return granted() end
if state ~= 'queued' or get(key, 'wake') ~= A.wake then return fail('stale') end
if get(key, 'stop') ~= '' then
  obey_stop(A.run)
  overdue()
  flush()
  return fail('stale')
end

local did = get(key, 'dispatch')
local fresh = true -- nothing of it was answered or billed
for _, v in ipairs(redis.call('HMGET', key, 'input', 'write_5m', 'write_1h', 'read', 'output', 'cost', 'unpriced')) do
  if v and v ~= '' and v ~= '0' then fresh = false end
end
if did ~= '' then
  local dkey = DISPATCH .. did
  local gate, cold = get(dkey, 'gate'), get(dkey, 'cold') == '1'
  if gate == 'closed' and get(dkey, 'leader') ~= A.run and (fresh or cold) then
    set_state(A.run, 'parked')
    flush()
    return fail('parked')
  end
  if gate == 'open' and (cold or fresh and NOW - tonumber(get(dkey, '_opened')) > tonumber(A.ttl)) then
    -- The shared entry is gone by now: write it again before the others read.
    redis.call('HINCRBY', dkey, 'generation', 1)
    redis.call('HSET', dkey, 'gate', 'closed')
    lead(did, A.run)
    gate_history(did, 'closed', A.run, cold and 'other_key' or 'expired')
  end
end
if A.foreground ~= '1' then to_background(A.run) end
set_state(A.run, 'running')
grant(A.run, A.executor, A.token)
overdue() -- of a call that this one answers; the run itself is not queued any more
flush()
return granted()

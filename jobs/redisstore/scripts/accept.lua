-- A.run: fields of the turn to create; A.executor, A.token; A.item, A.text (inbox JSON); A.key, A.hash.
-- Answers run id, started (1 or 0), epoch, run.
local sid, rid = A.run.session, A.run.id
local skey = SESSION .. sid
if redis.call('EXISTS', skey) == 0 then return fail('not_found') end

-- The token is fresh in every call: when it comes again, the answer of this
-- very call was lost on the way, and the caller does hold the lease.
local known = redis.call('HGET', ACCEPTED .. sid, A.key ~= '' and 'key:' .. A.key or 'item:' .. A.item)
if known then
  known = cjson.decode(known)
  if A.key ~= '' and known.hash ~= A.hash then return fail('idempotency') end
  local h = redis.call('HMGET', RUN .. known.run, 'state', '_token', '_epoch')
  if known.token == A.token and h[1] == 'running' and h[2] == A.token then
    return {'ok', known.run, '1', h[3], (public(RUN .. known.run))}
  end
  return {'ok', known.run, '0'}
end

inbox_put(sid, A.item, A.text)
local started = get(skey, 'active_run') == ''
if started then
  start_turn(A.run, 'running')
  grant(rid, A.executor, A.token)
else
  rid = get(skey, 'active_run')
  touch_session(sid) -- whoever watches sees that something waits
  -- A turn that was asked to stop will not read this: another one follows it.
  if get(RUN .. rid, 'stop') ~= '' then redis.call('HSET', skey, '_follow', A.item) end
end
local record = cjson.encode({run = rid, hash = A.hash, token = started and A.token or ''})
redis.call('HSET', ACCEPTED .. sid, 'item:' .. A.item, record)
if A.key ~= '' then redis.call('HSET', ACCEPTED .. sid, 'key:' .. A.key, record) end
flush()
if not started then return {'ok', rid, '0'} end
return {'ok', rid, '1', get(RUN .. rid, '_epoch'), (public(RUN .. rid))}

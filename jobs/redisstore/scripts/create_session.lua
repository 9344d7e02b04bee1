-- A.session: fields; A.hash: request hash. Answers created (1 or 0) and the session.
local sid = A.session.id
local key = SESSION .. sid
local again = replay(key)
if again then return {'ok', again[2], (public(key))} end
op_key = nil
if redis.call('EXISTS', key) == 1 then
  if get(key, '_hash') ~= A.hash then return fail('idempotency') end
  return {'ok', '0', (public(key))}
end
if redis.call('EXISTS', ARCHIVED .. sid) == 1 then return fail('not_found') end -- the caller opens it and asks again
put(key, A.session)
put(key, {created = NOW_S, _hash = A.hash, _op = OP, _reply = '["ok","1"]'})
redis.call('ZADD', SESSIONS, int(NOW_US), sid)
touch_session(sid)
flush()
return {'ok', '1', (public(key))}

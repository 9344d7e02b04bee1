#!lua flags=allow-oom
-- Removes an archived session whose file is on disk: a full Redis must run this, it is what frees it.
-- A.session, A.version, A.event (its last event), A.blobs, A.snapshots (how many): as the file has them. A.idle (ms that nobody may
-- have changed or opened it; 0 = any). A.keys (stems and ids of all that goes), A.runs (ids of runs and dispatches),
-- A.stub (fields). Answers 1, or 0 and why it stays.
local sid = A.session
local key, stub = SESSION .. sid, ARCHIVED .. sid
if get(stub, 'archive_sha256') == A.stub.archive_sha256 then return {'ok', '1', ''} end -- this very call was answered before
if redis.call('EXISTS', key) == 0 then return fail('not_found') end

local last = redis.call('XREVRANGE', EVENTS .. sid, '+', '-', 'COUNT', 1)[1]
if get(key, 'version') ~= A.version or (last and last[1] or '') ~= A.event
  or int(redis.call('HLEN', BLOBS .. sid)) ~= A.blobs or int(redis.call('HLEN', SNAPSHOTS .. sid)) ~= A.snapshots then
  return {'ok', '0', 'changed'}
end
if get(key, 'active_run') ~= '' or redis.call('ZCARD', ACTIVE .. sid) > 0 or redis.call('LLEN', INBOX_ORDER .. sid) > 0 then
  return {'ok', '0', 'busy'}
end
local since = NOW - tonumber(A.idle)
if A.idle ~= '0' and (tonumber(get(key, 'updated')) > since or tonumber(redis.call('ZSCORE', SEEN, sid) or '0') > since) then
  return {'ok', '0', 'in use'}
end

for _, k in ipairs(A.keys) do redis.call('DEL', SHARD .. k) end
put(stub, A.stub)
redis.call('HSET', stub, 'archived_at', NOW_S)
for _, id in ipairs(A.runs) do redis.call('HSET', WHERE, id, sid) end
redis.call('ZREM', SEEN, sid)
return {'ok', '1', ''}

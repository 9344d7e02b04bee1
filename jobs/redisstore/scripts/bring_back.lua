-- A.session, A.sha256 (of the file), A.runs (ids of runs and dispatches), A.blobs (names of those that were put back before). ARGV[4] on: stem and ids of a key, and what DUMP made of
-- it. Answers 1, or 0 when another opener was first.
local sid = A.session
local stub = ARCHIVED .. sid
if redis.call('EXISTS', stub) == 0 then
  if redis.call('EXISTS', SESSION .. sid) == 0 then return fail('not_found') end
  return {'ok', '0'}
end
if get(stub, 'archive_sha256') ~= A.sha256 then
  return fail('conflict', 'This session was archived again while it was opened.', 'Open it once more.')
end
for _, name in ipairs(A.blobs) do
  if redis.call('HEXISTS', BLOBS .. sid, name) == 0 then -- another opener found no room, and took them out
    return fail('conflict', 'This session could not be opened just now.', 'Open it once more.')
  end
end
for i = 4, #ARGV, 2 do
  local key, kept = SHARD .. ARGV[i], {}
  -- Manifests go in before the step that refers to them: these may have come while the session was away.
  if key == SNAPSHOTS .. sid then kept = redis.call('HGETALL', key) end
  redis.call('RESTORE', key, 0, ARGV[i + 1], 'REPLACE')
  for j = 1, #kept, 2 do redis.call('HSETNX', key, kept[j], kept[j + 1]) end
end
for _, id in ipairs(A.runs) do redis.call('HDEL', WHERE, id) end
redis.call('DEL', stub)
redis.call('ZADD', SEEN, NOW_S, sid)
return {'ok', '1'}

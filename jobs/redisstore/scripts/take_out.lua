-- A.session, A.blobs (names that its file has): what was put back before it turned out that the session cannot come back now.
if redis.call('EXISTS', ARCHIVED .. A.session) == 1 then
  for _, name in ipairs(A.blobs) do redis.call('HDEL', BLOBS .. A.session, name) end
end
return {'ok'}

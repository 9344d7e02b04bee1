#!lua flags=allow-oom
-- A.session: somebody opened it. In a full Redis it must not be taken for one that nobody looks at.
if redis.call('EXISTS', SESSION .. A.session) == 1 then redis.call('ZADD', SEEN, NOW_S, A.session) end
return {'ok'}

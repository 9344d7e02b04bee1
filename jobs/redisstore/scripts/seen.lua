#!lua flags=allow-oom
-- A.session: somebody opened it. In a full Redis it must not be taken for one that nobody looks at.
redis.call('ZADD', SEEN, NOW_S, A.session)
redis.call('ZREMRANGEBYSCORE', SEEN, '-inf', int(NOW - 86400000))
return {'ok'}

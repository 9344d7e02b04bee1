-- A.executor. The next sweep finds it silent, requeues what it holds and forgets it.
redis.call('HSET', BEATS, A.executor, '0')
return ok()

-- KEYS[1] is the set of secrets by expiry; ARGV: what (save, check, take, drop), member, expiry in ms or "inf".
-- Answers 1 when the secret was there and valid.
local clock = redis.call('TIME')
local now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
-- First, and always: Redis lets a script that began by removing go on when its memory is full, and people must be able to sign in then.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ARGV[1] == 'save' then
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[2])
  return 1
end
if ARGV[1] == 'check' then
  if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 1 end
  return 0
end
return redis.call('ZREM', KEYS[1], ARGV[2])

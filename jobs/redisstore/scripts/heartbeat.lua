-- A.executor. Answers run id and kind by turns; an empty id with "swept" when the executor was not on the list.
local new = redis.call('HSET', BEATS, A.executor, NOW_S)
-- The answer is kept until the next beat: a repeat of this call (same op) must not lose signals.
local sent = redis.call('HMGET', SENT .. A.executor, 'op', 'reply')
if sent[1] == OP then return cjson.decode(sent[2]) end
local reply = {'ok'}
if new == 1 then reply = {'ok', '', 'swept'} end
for _, v in ipairs(redis.call('HGETALL', SIGNALS .. A.executor)) do reply[#reply + 1] = v end
if #reply > 1 then
  redis.call('DEL', SIGNALS .. A.executor)
  redis.call('HSET', SENT .. A.executor, 'op', OP, 'reply', cjson.encode(reply))
elseif sent[1] then
  redis.call('DEL', SENT .. A.executor)
end
return reply

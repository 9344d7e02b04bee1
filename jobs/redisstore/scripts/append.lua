-- Holder; A.expect; A.entries; A.take (inbox items). Answers the new length.
local bad = guard()
if bad then return bad end
local key = RUN .. A.run
local sid, agent = get(key, 'session'), get(key, 'agent')
if not log_is(sid, agent, A.expect) then return fail('lease_lost') end
for _, item in ipairs(A.take) do
  if redis.call('HEXISTS', INBOX .. sid, item) == 0 then return fail('inbox') end
end
for _, item in ipairs(A.take) do
  redis.call('HDEL', INBOX .. sid, item)
  redis.call('LREM', INBOX_ORDER .. sid, 1, item)
end
return ok(append_all(sid, agent, A.run, A.entries))

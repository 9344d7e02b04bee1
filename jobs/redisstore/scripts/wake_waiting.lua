-- A.account; A.cold: 1 = what dispatches shared is not held any more. Answers wakes.
for _, rid in ipairs(redis.call('SMEMBERS', WAITING .. A.account)) do
  local did = get(RUN .. rid, 'dispatch')
  if A.cold == '1' and did ~= '' and get(DISPATCH .. did, 'gate') == 'open' then
    redis.call('HSET', DISPATCH .. did, 'cold', '1')
  end
  requeue(rid)
end
return ok(wake_list())

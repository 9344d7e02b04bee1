-- A.run; A.candidate and its titles (see obey_stop). Answers wakes.
local key = RUN .. A.run
local again = replay(key, '_wish')
if again then return again end
local state = get(key, 'state')
if state == '' then return fail('not_found') end
if not NEXT[state] then
  return fail('conflict', 'This run has ended already (' .. state .. ').', 'Nothing is left to cancel.')
end
wish_stop(A.run, 'cancel')
obey_stop(A.run)
return ok(wake_list())

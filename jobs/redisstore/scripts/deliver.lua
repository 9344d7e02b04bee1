-- A.dispatch; A.candidate and its titles (see obey_stop). Moves what ended children have to tell to the inbox, whatever the
-- policy says. Answers wakes.
local key = DISPATCH .. A.dispatch
local again = replay(key, '_wish')
if again then return again end
if redis.call('EXISTS', key) == 0 then return fail('not_found') end
if get(key, '_notices') == '' then
  return fail('conflict', 'No run of this fan-out has anything to tell that was not handed over.', 'Wait until one of them ends.')
end
redis.call('HSET', key, '_stopped', '') -- whoever asks wants the turn that a stop held back
deliver_notices(get(key, 'session'), A.dispatch, A.candidate, A.reports_title)
return ok(wake_list())

-- A.run.
local key = RUN .. A.run
local state = get(key, 'state')
if state == '' then return fail('not_found') end
if state ~= 'running' or get(key, 'background') == '1' then
  return fail('conflict', 'This run is not running in the foreground.', 'It already goes on without you, or has ended.')
end
signal(A.run, 'background')
return ok()

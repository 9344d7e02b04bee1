-- KEYS[1]: the account's hash. ARGV[1]: what; ARGV[2]: its arguments as JSON, numbers as strings. Fields: cool (ms until when
-- nobody starts), next (ms of the next free place), last (ms of the last place taken), gap (ms between the next two), taken
-- (places since the last rest), refused (JSON) and refused_at, limits (JSON) and limits_at, successor, sealed.
local key, what, A = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local function int(n) return string.format('%.0f', n) end
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function get(field) return redis.call('HGET', key, field) or '' end
local function number(field) return tonumber(get(field)) or 0 end
local function set(...) redis.call('HSET', key, ...) end

if what == 'admit' then
  if get('sealed') ~= '' then return {'successor', get('successor'), get('sealed')} end
  if get('refused') ~= '' then return {'refused', get('refused'), get('successor')} end
  local gap, taken = number('gap'), number('taken')
  if now - number('last') > tonumber(A.rest) and now - number('cool') > tonumber(A.rest) then gap, taken = 0, 0 end
  local at = math.max(now, number('cool'), number('next'))
  if at - now > tonumber(A.patience) then return {'later', int(at - now)} end
  taken = taken + 1
  if gap == 0 and A.pace == '1' and int(taken) == A.burst then gap = tonumber(A.ramp) end
  local next_gap = math.floor(gap * 19 / 20)
  if next_gap < 5 then next_gap = 0 end
  set('taken', int(taken), 'next', int(at + gap), 'last', int(at), 'gap', int(next_gap))
  return {'placed', int(at - now)}
elseif what == 'cool' then
  if now + tonumber(A.delay) > number('cool') then set('cool', int(now + tonumber(A.delay))) end
  set('gap', A.gap)
elseif what == 'limits' then
  set('limits', A.limits, 'limits_at', int(now))
elseif what == 'refuse' then
  if get('refused') == '' then set('refused', A.reason, 'refused_at', int(now)) end
elseif what == 'accept' then
  redis.call('HDEL', key, 'refused', 'refused_at', 'successor', 'sealed')
elseif what == 'succeed' then
  if A.sealed ~= '' and get('sealed') ~= '' then return {get('successor') == A.successor and 'ok' or 'taken'} end
  set('successor', A.successor, 'sealed', A.sealed)
else
  error('no such step: ' .. what)
end
return {'ok'}

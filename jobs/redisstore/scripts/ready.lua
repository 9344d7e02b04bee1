-- KEYS[1]: the stem of all keys of the ready list (see ready.go); ARGV: what, its arguments as JSON with numbers as strings.
--
-- A pool has entries, hash run → JSON {n, session, class, owner}; for each class and session a line of runs; and what takes
-- turns: the owners of a class, in each owner its sessions. A session takes turns while its line is not empty, it is not
-- paused and it has room for one run more. Classes: "i" somebody waits for it, "b" nobody does.
local P, what, A = KEYS[1], ARGV[1], cjson.decode(ARGV[2])
local clock = redis.call('TIME')
local NOW = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))

local PAUSED = P .. 'paused' -- hash scope → ms: "all", "pool:<pool>", "session:<session>"
local CAP = tonumber(A.cap or '0')

local function entries(pool) return P .. 'entries:' .. pool end
local function line(at, sid) return P .. 'line:' .. at .. ':' .. sid end
local function turns(at, owner) return P .. 'sessions:' .. at .. ':' .. owner end
local function owners(at) return P .. 'owners:' .. at end
local function members(at) return P .. 'in:' .. at end -- set of the sessions that take turns
local function busy(sid) return P .. 'busy:' .. sid end -- hash run → ms, with a cap only

local function full(sid) return CAP > 0 and redis.call('HLEN', busy(sid)) >= CAP end

-- at is "<pool>:<class>".
local function join(at, sid, owner)
  if redis.call('HEXISTS', PAUSED, 'session:' .. sid) == 1 or full(sid) or redis.call('LLEN', line(at, sid)) == 0 then return end
  if redis.call('SADD', members(at), sid) == 1 and redis.call('RPUSH', turns(at, owner), sid) == 1 then
    redis.call('RPUSH', owners(at), owner)
  end
end

local function leave(at, sid, owner)
  if redis.call('SREM', members(at), sid) == 1 then
    redis.call('LREM', turns(at, owner), 1, sid)
    if redis.call('LLEN', turns(at, owner)) == 0 then redis.call('LREM', owners(at), 1, owner) end
  end
end

-- places calls f with every place where a session has had runs.
local function places(sid, f)
  for _, place in ipairs(redis.call('SMEMBERS', P .. 'where:' .. sid)) do
    local at, owner = string.match(place, '^(%S+) (.*)$')
    f(at, sid, owner)
  end
end

if what == 'offer' then
  -- A.wakes: {run, n, session, pool, class, owner}. Answers pools and how many entries each has more, by turns.
  local added, order = {}, {}
  for _, w in ipairs(A.wakes) do
    local at = w.pool .. ':' .. w.class
    local new = redis.call('HSET', entries(w.pool), w.run, cjson.encode({n = w.n, session = w.session, class = w.class, owner = w.owner}))
    if new == 1 then
      if w.pool ~= '' then redis.call('HSETNX', P .. 'pools', w.pool, '') end -- until somebody names its root
      redis.call('SADD', P .. 'where:' .. w.session, at .. ' ' .. w.owner)
      redis.call('RPUSH', line(at, w.session), w.run)
      join(at, w.session, w.owner)
      if not added[w.pool] then
        added[w.pool] = 0
        order[#order + 1] = w.pool
      end
      added[w.pool] = added[w.pool] + 1
    end
  end
  local reply = {}
  for _, pool in ipairs(order) do
    reply[#reply + 1] = pool
    reply[#reply + 1] = string.format('%.0f', added[pool])
  end
  return reply
elseif what == 'pick' then
  -- A.pools. Answers run, wake and session, or nothing.
  if redis.call('HEXISTS', PAUSED, 'all') == 1 then return {} end
  local n = redis.call('INCR', P .. 'picks')
  local order = {'i', 'b'}
  if n % 8 == 0 then order = {'b', 'i'} end -- what nobody waits for must not starve
  for _, class in ipairs(order) do
    for k = 1, #A.pools do
      local pool = A.pools[(n + k) % #A.pools + 1]
      local at = pool .. ':' .. class
      local owner = redis.call('HEXISTS', PAUSED, 'pool:' .. pool) == 0 and redis.call('LPOP', owners(at))
      while owner do
        local sid = redis.call('LPOP', turns(at, owner))
        local run = sid and redis.call('LPOP', line(at, sid))
        local entry = run and redis.call('HGET', entries(pool), run)
        if entry then
          redis.call('HDEL', entries(pool), run)
          if CAP > 0 then
            redis.call('HSET', busy(sid), run, NOW)
            redis.call('SADD', P .. 'capped', sid)
          end
        end
        if sid then
          local left = redis.call('LLEN', line(at, sid))
          if left > 0 and not full(sid) then redis.call('RPUSH', turns(at, owner), sid) else redis.call('SREM', members(at), sid) end
          if left == 0 then redis.call('SREM', P .. 'where:' .. sid, at .. ' ' .. owner) end
        end
        if redis.call('LLEN', turns(at, owner)) > 0 then redis.call('RPUSH', owners(at), owner) end
        if entry then
          local e = cjson.decode(entry)
          return {run, e.n, e.session}
        end
        owner = redis.call('LPOP', owners(at))
      end
    end
  end
  return {}
elseif what == 'depths' then
  -- A.pools. Answers for each how many entries may be picked now.
  local reply = {}
  for i, pool in ipairs(A.pools) do
    local n = 0
    if redis.call('HEXISTS', PAUSED, 'all') == 0 and redis.call('HEXISTS', PAUSED, 'pool:' .. pool) == 0 then
      for _, class in ipairs({'i', 'b'}) do
        local at = pool .. ':' .. class
        for _, sid in ipairs(redis.call('SMEMBERS', members(at))) do n = n + redis.call('LLEN', line(at, sid)) end
      end
    end
    reply[i] = string.format('%.0f', n)
  end
  return reply
elseif what == 'done' then
  -- A.session, A.run: it is not executed any more.
  if redis.call('HDEL', busy(A.session), A.run) == 1 then places(A.session, join) end
  if redis.call('HLEN', busy(A.session)) == 0 then redis.call('SREM', P .. 'capped', A.session) end
elseif what == 'pause' then
  redis.call('HSETNX', PAUSED, A.scope, NOW)
  local sid = string.match(A.scope, '^session:(.*)$')
  if sid then places(sid, leave) end
elseif what == 'resume' then
  redis.call('HDEL', PAUSED, A.scope)
  local sid = string.match(A.scope, '^session:(.*)$')
  if sid then places(sid, join) end
elseif what == 'announce' then
  -- A.executor, A.info (JSON; empty = it goes). Answers 1 when it is to be drained.
  if A.info == '' then
    redis.call('HDEL', P .. 'workers', A.executor)
    redis.call('HDEL', P .. 'seen', A.executor)
    redis.call('HDEL', P .. 'drain', A.executor)
    return {'0'}
  end
  redis.call('HSET', P .. 'workers', A.executor, A.info)
  redis.call('HSET', P .. 'seen', A.executor, NOW)
  local seen = redis.call('HGETALL', P .. 'seen')
  for i = 1, #seen, 2 do
    if tonumber(NOW) - tonumber(seen[i + 1]) > 600000 then
      for _, hash in ipairs({'workers', 'seen', 'drain'}) do redis.call('HDEL', P .. hash, seen[i]) end
    end
  end
  return {redis.call('HEXISTS', P .. 'drain', A.executor) == 1 and '1' or '0'}
elseif what == 'drain' then
  if redis.call('HEXISTS', P .. 'workers', A.executor) == 0 then return {'unknown'} end
  if A.on == '1' then redis.call('HSET', P .. 'drain', A.executor, NOW) else redis.call('HDEL', P .. 'drain', A.executor) end
else
  error('no such step: ' .. what)
end
return {'ok'}

-- KEYS[1]: the samples, "<ms>:<bytes>". ARGV: bytes in use, least time between two samples (ms), how many are kept.
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local last = redis.call('LINDEX', KEYS[1], -1)
local at = last and tonumber(string.match(last, '^%d+')) or 0
-- A clock that was set back must not end the series.
if at <= now and now - at < tonumber(ARGV[2]) then return '0' end
redis.call('RPUSH', KEYS[1], string.format('%.0f', now) .. ':' .. ARGV[1])
redis.call('LTRIM', KEYS[1], '-' .. ARGV[3], -1)
return '1'

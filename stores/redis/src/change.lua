-- Some compare-and-sets, each independent of the others, and their notifications.
-- KEYS: the marker; then for each item the hash of its kind.
-- ARGV: the channel, a marker if there is none yet;
--       then for each item: field, expected version ('' = absent), packed value ('' = delete), flags.
-- Flags: n = notify, k = never delete.
-- Answers: the marker, how many notifications were refused, then for each item
--       1 = applied; text or nil = conflict, what is there; {'refused', what is there}; {'failed', why}.
-- Tokens are compared as text of one length, never as numbers: Lua would round them when it prints them.
local marker = redis.call('GET', KEYS[1])
if marker and string.sub(marker, 1, 2) ~= '1:' then return {marker} end
local none = string.rep('-', 16)
local unnotified = 0

local function failed(reply) return type(reply) == 'table' and reply.err end

-- Which register, and not what it holds: others than us may listen, and publish.
local function notify(key, field)
  if failed(redis.pcall('PUBLISH', ARGV[1], key .. ' ' .. field)) then unnotified = unnotified + 1 end
end

local function write(key, field, put)
  if put == '' then return redis.pcall('HDEL', key, field) end
  if not marker then
    local made = redis.pcall('SET', KEYS[1], ARGV[2])
    if failed(made) then return made end
    marker = ARGV[2]
  end
  return redis.pcall('HSET', key, field, put)
end

local function falls(now, put)
  local old, new = now and string.sub(now, 34, 49) or none, string.sub(put, 34, 49)
  return old ~= none and (new == none or new < old)
end

local function change(key, field, expect, put, flags)
  local now = redis.pcall('HGET', key, field)
  if failed(now) then return {'failed', now.err} end
  if (now and string.sub(now, 1, 32) or '') ~= expect then return now end
  if put == '' and string.find(flags, 'k', 1, true) then return {'refused', now} end
  if put ~= '' and falls(now, put) then return {'refused', now} end
  local done = write(key, field, put)
  if failed(done) then return {'failed', done.err} end
  if string.find(flags, 'n', 1, true) then notify(key, field) end
  return 1
end

local answers = {false, 0}
for n = 2, #KEYS do
  local at = 4 * n - 5
  answers[n + 1] = change(KEYS[n], ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
answers[1], answers[2] = marker, unnotified
return answers

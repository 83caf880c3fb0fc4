-- Carries out commands if no newer leader has been here. KEYS: the fence. ARGV: role, token, then of each command the
-- number of its words, and its words.
--
-- Tokens are below 2^53, so that numbers hold them exactly; they are never written from a number, which would round.
local role, token = unpack(redis.call('HMGET', KEYS[1], 'role', 'token'))
if role and role ~= ARGV[1] then return {'role', role} end
if token and tonumber(token) > tonumber(ARGV[2]) then return {'token', token} end
redis.call('HSET', KEYS[1], 'role', ARGV[1], 'token', ARGV[2])
local answers, at = {}, 3
while at <= #ARGV do
    local words = tonumber(ARGV[at])
    answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
end
return {'done', answers}

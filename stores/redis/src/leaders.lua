-- Who leads what, for people: role, node, token, and since when (seconds since 1970). KEYS: the cluster of a namespace.
-- No single quotes, so that a shell can be told it in them; no number is printed that was not text before.
local cluster = redis.call("HGET", KEYS[1], "cluster")
if not cluster then return {} end
local life = string.sub(string.match(cluster, [["epoch":%d+]]), 9)
local roles = redis.call("HGETALL", string.sub(KEYS[1], 1, -10) .. life .. ":role")
local lines = {}
for at = 1, #roles, 2 do
    local packed = roles[at + 1]
    local holder = cjson.decode(string.sub(packed, 51)).holder
    local node = type(holder) == "table" and holder.node or "-"
    local token = string.match(string.sub(packed, 34, 49), "^0*(%d+)$") or "-"
    local since = string.match(packed, [["since":(%d+)%d%d%d%d%d%d]]) or "-"
    lines[#lines + 1] = table.concat({roles[at], node, token, since}, " ")
end
table.sort(lines)
return lines

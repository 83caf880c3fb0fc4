//! What has to be set up on a server: nothing but the least rights.

use tenure_store::SetupRequest;

/// What a user needs, line by line: to take part, and to see the class of the server.
const GRANTS: &str = "\
ACL SETUSER USER on >PASSWORD ~tenure:* &tenure:* +hello +select +ping +eval +evalsha +get +set +hget +hset +hdel +hmget +hgetall +publish +subscribe
ACL SETUSER USER +info +config|get
";

/// Shows who leads what, for `redis-cli EVAL`; its key is `tenure:{NAMESPACE}:0:cluster`.
const LEADERS: &str = include_str!("leaders.lua");

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let rights = GRANTS.replace(" USER ", &format!(" {} ", request.user));
    let lines = LEADERS.lines().map(str::trim).filter(|line| !line.starts_with("--"));
    let script = lines.collect::<Vec<_>>().join(" ");
    format!(
        "# Nothing has to be made. The least rights, and those that tell how the server keeps its data:\n{rights}\n\
         # Who leads what, since when (role, node, token, seconds since 1970), in a shell:\n\
         # redis-cli EVAL '{script}' 1 'tenure:{{{}}}:0:cluster'\n",
        request.namespace
    )
}

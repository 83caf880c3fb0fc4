//! What has to be set up: nothing but the least rights.

use super::settings::PREFIX;
use tenure_store::SetupRequest;

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let SetupRequest { user, namespace, .. } = request;
    format!(
        "# Nothing has to be made. The least rights: one role on the keys under the prefix, one user that has it.\n\
         # With another prefix in the URL, write that one. `user add` asks for the password.\n\
         etcdctl role add {user}\n\
         etcdctl role grant-permission {user} --prefix=true readwrite {PREFIX}/\n\
         etcdctl user add {user}\n\
         etcdctl user grant-role {user} {user}\n\
         # They count once authentication is on, for everything that uses this etcd:\n\
         # etcdctl user add root && etcdctl user grant-role root root && etcdctl auth enable\n\
         \n\
         # Old revisions are kept until they are compacted, and every beat is one: start each member with\n\
         # --auto-compaction-mode=periodic --auto-compaction-retention=10m\n\
         \n\
         # Who leads what (version, token, record), and changes as they come:\n\
         # etcdctl get --prefix {PREFIX}/{namespace}/ | grep -A1 /role/\n\
         # etcdctl watch --prefix {PREFIX}/_changed/\n"
    )
}

//! What has to be set up: a bucket that forgets nothing, and the least rights.

use super::settings::BUCKET;
use tenure_store::SetupRequest;

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let SetupRequest { user, namespace, .. } = request;
    format!(
        "# The bucket, for nodes that may not make it (with one server: --replicas=1). With another one in the URL, write that name.\n\
         nats kv add {BUCKET} --history=1 --storage=file --replicas=3 --marker-ttl=24h\n\
         \n\
         # The least rights, in the configuration of each server. The last line but one lets the nodes make the bucket: leave it\n\
         # out if it is there already.\n\
         authorization {{\n\
         \x20 users = [ {{\n\
         \x20   user: {user}, password: \"$TENURE_PASSWORD\"\n\
         \x20   permissions {{\n\
         \x20     publish: [\n\
         \x20       \"$KV.{BUCKET}.>\"\n\
         \x20       \"$JS.API.DIRECT.GET.KV_{BUCKET}\"\n\
         \x20       \"$JS.API.STREAM.INFO.KV_{BUCKET}\"\n\
         \x20       \"$JS.API.STREAM.CREATE.KV_{BUCKET}\"\n\
         \x20     ]\n\
         \x20     subscribe: \"tenure.{BUCKET}.>\"\n\
         \x20   }}\n\
         \x20 }} ]\n\
         }}\n\
         \n\
         # JetStream acknowledges writes up to two minutes before they are on disk. Let every server write at once, and say so in\n\
         # the URL with sync=always:\n\
         # jetstream {{ store_dir: /var/lib/nats, sync_interval: always }}\n\
         \n\
         # Who leads what (version, token, record), and changes as they come:\n\
         # nats kv get {BUCKET} {namespace}.EPOCH.role.ROLE --raw\n\
         # nats sub 'tenure.{BUCKET}.changed.>'\n"
    )
}

//! What has to be set up: a znode at the top whose rights everything under it gets.

use super::settings::ROOT;
use tenure_store::SetupRequest;

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let SetupRequest { user, namespace, .. } = request;
    format!(
        "# In zkCli.sh. What the nodes make gets the rights of the znode at the top: with these, {user} alone may read and write\n\
         # there. With another path in the URL, write that one.\n\
         addauth digest {user}:$TENURE_PASSWORD\n\
         create {ROOT}\n\
         setAcl {ROOT} auth:{user}:cdrwa\n\
         \n\
         # Who leads what (version, token, record), and changes as they come:\n\
         # get {ROOT}/{namespace}/EPOCH/role/ROLE\n\
         # addWatch -m PERSISTENT_RECURSIVE {ROOT}/_changed\n"
    )
}

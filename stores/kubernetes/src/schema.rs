//! What has to be set up: nothing but the least rights.

use super::settings::PREFIX;
use tenure_store::SetupRequest;

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let SetupRequest { user, namespace, .. } = request;
    let label = super::keys::readable(namespace.as_str(), 63);
    let user = super::keys::readable(user.as_str(), 63);
    format!(
        "# Nothing has to be made but the least rights: a service account that may use Leases, in one namespace.\n\
         # Write its name for NAMESPACE and apply it there:\n\
         #   tenure schema --for kubernetes | sed s/NAMESPACE/team/ | kubectl apply -n team -f -\n\
         # and give your pods   serviceAccountName: {user}\n\
         apiVersion: v1\n\
         kind: ServiceAccount\n\
         metadata:\n\
         \x20 name: {user}\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: Role\n\
         metadata:\n\
         \x20 name: {user}\n\
         rules:\n\
         - apiGroups: [coordination.k8s.io]\n\
         \x20 resources: [leases]\n\
         \x20 verbs: [get, list, watch, create, update, delete]\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: RoleBinding\n\
         metadata:\n\
         \x20 name: {user}\n\
         roleRef:\n\
         \x20 apiGroup: rbac.authorization.k8s.io\n\
         \x20 kind: Role\n\
         \x20 name: {user}\n\
         subjects:\n\
         - kind: ServiceAccount\n\
         \x20 name: {user}\n\
         \x20 namespace: NAMESPACE\n\
         ---\n\
         # Who leads what, who lives, and what a register holds:\n\
         # kubectl get leases -l tenure/store={PREFIX},tenure/namespace={label},tenure/kind=role\n\
         # kubectl get leases -l tenure/store={PREFIX},tenure/namespace={label},tenure/kind=session\n\
         # kubectl get lease NAME -o jsonpath='{{.metadata.annotations.tenure/record}}'\n"
    )
}

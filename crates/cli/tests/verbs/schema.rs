//! `tenure schema` asks no server and shows no secret.

use crate::kit::{TestDir, bare, ran};

#[test]
fn the_scheme_is_enough_and_the_rest_of_the_url_is_never_used() {
    let dir = TestDir::new();
    for (url, part) in [
        (
            "postgres://me:hunter2@127.0.0.1:1/db",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO \"app\";",
        ),
        ("rediss://:hunter2@nowhere.invalid:1/0", "ACL SETUSER app on >PASSWORD"),
        ("sqlite:/nowhere/hunter2.db", "CREATE VIEW tenure_leaders"),
        ("kubernetes:hunter2", "verbs: [get, list, watch, create, update, delete]"),
        #[cfg(feature = "zookeeper")]
        ("zookeeper://me:hunter2@a,b,c/x", "setAcl /tenure auth:app:cdrwa"),
        #[cfg(feature = "nats")]
        ("nats://me:hunter2@a,b,c/x", "\"$JS.API.DIRECT.GET.KV_tenure\""),
        #[cfg(feature = "object")]
        ("s3://k:hunter2@bucket/x", "aws iam put-user-policy --user-name app"),
        ("etcds://me:hunter2@a,b,c/x", "etcdctl role grant-permission app --prefix=true readwrite tenure/"),
    ] {
        let named = dir.run(&["schema", "--store", url]);
        assert_eq!((named.code, named.err.as_str()), (Some(0), ""), "{url}");
        assert!(named.out.contains(part) && !named.out.contains("hunter2"), "{url}: {}", named.out);
    }
    assert!(!dir.path().join("t.db").exists(), "nothing was opened");
}

#[test]
fn fences_have_tables_of_their_own_for_every_database() {
    for (kind, part) in [
        ("postgres", "GRANT SELECT, INSERT, UPDATE ON tenure_fence TO \"bob\";"),
        ("mysql", "GRANT SELECT, INSERT, UPDATE ON tenure_fence TO 'bob'@'%';"),
        ("sqlite", "STRICT, WITHOUT ROWID;"),
        ("redis", "ACL SETUSER bob on >PASSWORD ~tenure_fence:*"),
    ] {
        let ran = ran(bare(&["schema", "--for", kind, "--fence", "--user", "bob"]).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{kind}");
        assert!(ran.out.contains(part), "{kind}: {}", ran.out);
        assert!(!ran.out.contains("tenure_registers"), "{kind}: {}", ran.out);
    }
}

#[test]
fn a_store_without_fences_names_the_databases_that_have_them() {
    let ran = ran(bare(&["schema", "--for", "etcd", "--fence"]).output().unwrap());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("etcd has no fences") && ran.err.contains("mysql, postgres, redis, sqlite"),
        "{ran:?}"
    );
}

#[test]
fn what_needs_no_tables_is_told_in_one_line() {
    let ran = ran(bare(&["schema", "--store", "memory:hunter2"]).output().unwrap());
    assert_eq!((ran.code, ran.err.lines().count()), (Some(2), 1), "{ran:?}");
    assert!(ran.err.contains("--for") && !ran.err.contains("hunter2"), "{ran:?}");
}

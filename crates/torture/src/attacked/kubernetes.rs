//! Two API servers of Kubernetes on three members of etcd.

use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::FaultResult;
use super::data_dir::DataDir;
use crate::fault::FaultKind;
use crate::servers::etcd::Etcd;
use crate::servers::kubernetes::{ADMIN, Kubernetes as Servers};
use crate::target::AttackedServer;

const SERVERS: usize = 2;
const MEMBERS: usize = 3;
const NAMESPACE: &str = "torture";

/// Running API servers.
pub(super) struct Kubernetes {
    servers: Servers,
    /// Which API server, and which member, suffers next.
    turn: usize,
    older: Vec<TempDir>,
    data_dir: DataDir,
}

impl Kubernetes {
    pub(super) fn start(data_dir: DataDir) -> Self {
        let link = |port: u16| (std::net::Ipv4Addr::LOCALHOST, port).into();
        let etcd = Etcd::start_with(MEMBERS, &[], link, || data_dir.folder());
        let servers = Servers::start_on(SERVERS, etcd);
        servers.make_namespace(NAMESPACE);
        Self { servers, turn: 0, older: Vec::new(), data_dir }
    }

    fn stop_all(&mut self) {
        (0..SERVERS).for_each(|nth| self.servers.stop(nth));
        (0..MEMBERS).for_each(|nth| self.servers.etcd().stop(nth));
    }

    fn signal_all(&mut self, signal: Signal) {
        (0..SERVERS).for_each(|nth| self.servers.signal(nth, signal));
        (0..MEMBERS).for_each(|nth| self.servers.etcd().signal(nth, signal));
    }

    /// Everything is ended, and what each member had is copied.
    fn keep_copies(&mut self) {
        self.stop_all();
        for nth in 0..MEMBERS {
            let Some(data) = self.servers.etcd().data(nth) else { continue };
            self.older.push(self.data_dir.copy_of(data.path()));
        }
        self.servers.launch_all();
    }

    /// Every member goes on with what there was then.
    fn put_back_copies(&mut self) {
        let older = std::mem::take(&mut self.older);
        if older.is_empty() {
            return;
        }
        self.stop_all();
        for (nth, older) in older.into_iter().enumerate() {
            if let Some(data) = self.servers.etcd().data(nth) {
                *data = older;
            }
        }
    }

    /// Deletes the Leases that a selector finds.
    fn delete(&self, selector: &str) -> FaultResult {
        let path =
            format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases?labelSelector={selector}");
        let said = self.servers.ask("DELETE", &path, "");
        if said.status == 200 { Ok(()) } else { Err(format!("{said:?}")) }
    }
}

impl AttackedServer for Kubernetes {
    fn url(&self) -> String {
        let kubeconfig = self.servers.kubeconfig(ADMIN, true);
        let hosts = self.servers.hosts();
        format!("kubernetes:{NAMESPACE}?kubeconfig={}&class=a&server={hosts}", kubeconfig.display())
    }

    fn able(&self) -> &'static [FaultKind] {
        use FaultKind::{
            DeleteRows, Flush, MemberFreeze, MemberKill, ReadOnly, Restore, StoreFreeze, StoreKill,
        };
        &[StoreKill, StoreFreeze, ReadOnly, MemberKill, MemberFreeze, Flush, DeleteRows, Restore]
    }

    /// A member is an API server and, in turn, a member of the etcd behind it.
    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        self.turn += 1;
        let (server, member) = (self.turn % SERVERS, self.turn % MEMBERS);
        match kind {
            FaultKind::MemberKill => {
                self.servers.stop(server);
                self.servers.etcd().stop(member);
            }
            FaultKind::MemberFreeze => {
                self.servers.signal(server, Signal::STOP);
                self.servers.etcd().signal(member, Signal::STOP);
            }
            FaultKind::StoreKill => self.stop_all(),
            FaultKind::StoreFreeze => self.signal_all(Signal::STOP),
            FaultKind::ReadOnly => return self.servers.etcd().raise_nospace(member),
            FaultKind::Restore => self.keep_copies(),
            FaultKind::Flush => return self.delete("tenure/store=tenure"),
            FaultKind::DeleteRows => return self.delete("tenure/kind=session"),
            _ => {}
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::MemberFreeze | FaultKind::StoreFreeze => self.signal_all(Signal::CONT),
            FaultKind::Restore => self.put_back_copies(),
            _ => {}
        }
        if kind == FaultKind::ReadOnly {
            let hosts = self.servers.etcd().hosts();
            let mut command = self.servers.etcd().etcdctl(&hosts);
            command.args(["alarm", "disarm"]);
            super::run(command)?;
        }
        self.servers.launch_all();
        Ok(())
    }
}

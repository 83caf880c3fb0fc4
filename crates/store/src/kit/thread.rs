//! The thread of a handle that talks to a server: one thread with a runtime, on which its connections live, so that neither
//! the caller's runtime nor a caller that stopped waiting can harm them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::Entropy;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::StoreError;
use crate::entropy::KernelEntropy;

/// How long closing waits for what is under way.
const CLOSING: Duration = Duration::from_secs(2);

/// More operations at once than any process has.
const OPERATIONS: u32 = 1 << 20;

/// A thread with a runtime, and the gate through which operations come to it. Dropped, it ends.
#[derive(Debug)]
pub struct ConnectionThread {
    store: &'static str,
    runtime: Handle,
    end: CancellationToken,
    closed: AtomicBool,
    /// One permit for each operation under way. Closing takes all of them, so that nothing comes in afterwards.
    gate: Arc<Semaphore>,
    /// One permit for each guest. The thread ends when it has taken all of them.
    guests: Arc<Semaphore>,
}

impl ConnectionThread {
    /// Starts the thread of a store of that kind.
    ///
    /// # Errors
    /// If the process has no threads or descriptors left.
    pub fn open(store: &'static str) -> Result<Self, StoreError> {
        let no_resources = |error: std::io::Error| {
            let message = format!("this process has no threads or descriptors left: {error}");
            StoreError::not_applied(store, message).caused_by(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_resources)?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let guests = Arc::new(Semaphore::new(OPERATIONS as usize));
        let (until, others) = (end.clone(), guests.clone());
        let life = async move {
            until.cancelled().await;
            let _all = others.acquire_many(OPERATIONS).await;
            others.close();
        };
        let thread = std::thread::Builder::new().name(format!("tenure-{store}"));
        thread.spawn(move || runtime.block_on(life)).map_err(no_resources)?;
        let gate = Arc::new(Semaphore::new(OPERATIONS as usize));
        Ok(Self { store, runtime: handle, end, closed: AtomicBool::new(false), gate, guests })
    }

    /// Runs something here that asks this store again and again: no answer has to wait until another thread wakes up. It must not
    /// block, and the thread lives as long as it does, also after [`close`](Self::close). Given back if the thread ends already.
    pub fn host<F: Future<Output = ()> + Send + 'static>(&self, work: F) -> Result<(), F> {
        let Ok(permit) = self.guests.clone().try_acquire_owned() else { return Err(work) };
        self.runtime.spawn(async move {
            let _permit = permit;
            work.await;
        });
        Ok(())
    }

    /// Does something in the background, until it ends or the thread does.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Has the thread do something, whether or not the caller goes on waiting for it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.check_open()?;
        let permit = self.gate.clone().try_acquire_owned().map_err(|_| closed(self.store))?;
        let work = async move {
            let _permit = permit;
            work.await
        };
        self.runtime.spawn(work).await.unwrap_or_else(|_| Err(cut(self.store)))
    }

    /// Refuses everything from now on, waits a while for what is under way, and ends the thread. A caller that does not wait
    /// for it leaves it to itself.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let (gate, end) = (self.gate.clone(), self.end.clone());
        let closing = async move {
            let _all = tokio::time::timeout(CLOSING, gate.acquire_many(OPERATIONS)).await;
            gate.close();
            end.cancel();
        };
        let _ = self.runtime.spawn(closing).await;
    }

    /// Whether operations are still taken.
    pub fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(closed(self.store)) } else { Ok(()) }
    }
}

impl Drop for ConnectionThread {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// What an operation is told that comes after the end.
#[must_use]
pub fn closed(store: &'static str) -> StoreError {
    StoreError::not_applied(store, "this handle was closed: open another one").permanent()
}

fn cut(store: &'static str) -> StoreError {
    StoreError::unknown(store, "this handle was closed meanwhile: look whether it was written")
}

/// How long to wait after failures in a row: longer each time, up to three seconds, and never in step with others.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// The wait after one more failure.
    pub fn next_delay(&mut self) -> Duration {
        let wait = delay(self.0, KernelEntropy.nonce());
        self.0 = self.0.saturating_add(1);
        wait
    }

    /// Waits after one more failure.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_delay()).await;
    }
}

fn delay(failures: u32, nonce: u128) -> Duration {
    let base = Duration::from_millis(25 << failures.min(6));
    let jitter = u32::try_from(nonce % 1000).unwrap_or(0);
    base + base * jitter / 1000
}

#[cfg(test)]
mod tests {
    use tenure_core::Fate;

    use super::*;

    #[test]
    fn waiting_grows_to_a_limit_and_is_never_in_step() {
        assert!(delay(0, 0) >= Duration::from_millis(25) && delay(0, 999) < Duration::from_millis(50));
        assert!(delay(3, 0) > delay(2, 0));
        assert!(delay(99, 999) < Duration::from_secs(4));
        assert_ne!(delay(5, 1), delay(5, 500));
        let mut backoff = Backoff(u32::MAX);
        assert!(backoff.next_delay() >= Duration::from_millis(1600));
    }

    #[tokio::test]
    async fn a_guest_runs_to_its_end_and_the_thread_with_it() {
        let thread = ConnectionThread::open("thread").unwrap();
        let (go_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
        let (said, hears) = tokio::sync::oneshot::channel();
        let guest = async move {
            may_go_on.await.unwrap();
            said.send(std::thread::current().name().map(str::to_owned)).unwrap();
        };
        assert!(thread.host(guest).is_ok());
        thread.close().await;
        let guests = thread.guests.clone();
        drop(thread);
        go_on.send(()).unwrap();
        assert_eq!(hears.await.unwrap().as_deref(), Some("tenure-thread"));
        // The thread takes all permits, and closes the door: a guest that comes now runs elsewhere.
        while !guests.is_closed() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn closing_waits_for_what_is_under_way_and_refuses_the_rest() {
        let thread = ConnectionThread::open("thread").unwrap();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = tokio::sync::oneshot::channel();
        let slow = thread.run(async move {
            let _ = begun.send(());
            let _ = may_go_on.await;
            Ok(7)
        });
        let closing = async {
            has_begun.await.unwrap();
            let close = thread.close();
            let late = async {
                while thread.check_open().is_ok() {
                    tokio::task::yield_now().await;
                }
                assert_eq!(thread.run(async { Ok(()) }).await.unwrap_err().fate(), Fate::NotApplied);
                go_on.send(()).unwrap();
            };
            tokio::join!(close, late);
        };
        assert_eq!(tokio::join!(slow, closing).0.unwrap(), 7);
        thread.close().await;
    }
}

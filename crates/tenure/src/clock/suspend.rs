//! A timer of the kernel that goes on while the machine is suspended, and fires when it resumes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::SuspendTimer;

/// A timer on `CLOCK_BOOTTIME`. It belongs to the runtime in which it was made.
#[derive(Debug)]
pub(super) struct BootTimer {
    timer: AsyncFd<OwnedFd>,
}

impl BootTimer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe, for descriptors that are not owned; this one is"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer })
    }

    fn set(&self, span: Duration) -> io::Result<()> {
        let at_once = Duration::from_nanos(1);
        let it_value = Timespec::try_from(span.max(at_once)).map_err(io::Error::other)?;
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval, it_value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    async fn fired(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut count = [0; 8];
            match rustix::io::read(self.timer.get_ref(), &mut count) {
                Ok(_) => return Ok(()),
                // Set anew since it became readable.
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl SuspendTimer for BootTimer {
    fn fire_after(&mut self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let fired = async {
                self.set(span)?;
                self.fired().await
            };
            // A timer that cannot be set never rings: the runtime's own still does.
            if fired.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[tokio::test]
    async fn it_counts_suspends_by_the_kernels_word_and_can_be_set_anew() {
        let mut timer = BootTimer::new().expect("a timer");
        let fd = timer.timer.get_ref().as_raw_fd();
        timer.fire_after(Duration::from_millis(1)).await;
        {
            let hour = timer.fire_after(Duration::from_secs(3600));
            let early = tokio::time::timeout(Duration::from_millis(20), hour).await;
            assert!(early.is_err(), "it was set to an hour");
        }
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("its description");
        let clock = info.lines().find_map(|line| line.strip_prefix("clockid: "));
        assert_eq!(clock, Some("7"), "CLOCK_BOOTTIME is 7: {info}");
        timer.fire_after(Duration::ZERO).await;
    }
}

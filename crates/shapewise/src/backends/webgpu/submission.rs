//! Work that was given to the device: ask whether it is done, wait for it, or await it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::context::Context;
use super::error::Result;

/// Whether something has happened, and who wants to know.
#[derive(Default)]
struct Happened {
    yes: bool,
    watched: bool,
    waker: Option<Waker>,
}

/// Something that a callback of the driver will tell.
#[derive(Clone, Default)]
pub struct Signal(Arc<Mutex<Happened>>);

impl Signal {
    pub fn set(&self) {
        let mut happened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        happened.yes = true;
        let waker = happened.waker.take();
        drop(happened);
        waker.into_iter().for_each(Waker::wake);
    }

    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).yes
    }
}

/// Resolves when a signal is set, which happens when a submission is done.
pub struct Arrival {
    pub context: Arc<Context>,
    pub index: Option<wgpu::SubmissionIndex>,
    pub signal: Signal,
}

impl Future for Arrival {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = self.context.check() {
            return Poll::Ready(Err(error));
        }
        self.context.poll();
        let mut happened = self.signal.0.lock().unwrap_or_else(PoisonError::into_inner);
        if happened.yes {
            return Poll::Ready(self.context.check());
        }
        happened.waker = Some(task.waker().clone());
        // In a browser callbacks come by themselves; elsewhere somebody has to wait for them.
        if !happened.watched && cfg!(not(target_family = "wasm")) {
            happened.watched = true;
            drop(happened);
            let (context, index, signal) =
                (Arc::clone(&self.context), self.index.clone(), self.signal.clone());
            std::thread::spawn(move || {
                if context.wait(index, None).is_err() {
                    // The next look finds what went wrong.
                    signal.set();
                }
            });
        }
        Poll::Pending
    }
}

/// Work under way on the device. Dropping it does not stop the work.
///
/// It is also a future, for programs that must not block, as in a browser.
pub struct Submission {
    context: Arc<Context>,
    index: Option<wgpu::SubmissionIndex>,
    arrival: Option<Arrival>,
}

impl Submission {
    pub(super) fn new(context: &Arc<Context>, index: Option<wgpu::SubmissionIndex>) -> Self {
        Self { context: Arc::clone(context), index, arrival: None }
    }

    /// Waits until the work is done.
    pub fn wait(&self) -> Result<()> {
        self.context.wait(self.index.clone(), None)
    }

    /// Waits at most this long. On a timeout the device counts as lost: a shader that never ends cannot be stopped.
    pub fn wait_within(&self, timeout: Duration) -> Result<()> {
        self.context.wait(self.index.clone(), Some(timeout))
    }

    /// Listens for the end of all work given to the device so far.
    fn arrival(&mut self) -> &mut Arrival {
        let Self { context, index, arrival } = self;
        arrival.get_or_insert_with(|| {
            let signal = Signal::default();
            let told = signal.clone();
            context.queue.on_submitted_work_done(move || told.set());
            Arrival { context: Arc::clone(context), index: index.clone(), signal }
        })
    }

    /// Whether the work is done; does not wait.
    pub fn is_done(&mut self) -> Result<bool> {
        self.context.check()?;
        let signal = self.arrival().signal.clone();
        self.context.poll();
        Ok(signal.is_set())
    }
}

impl Future for Submission {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(self.arrival()).poll(task)
    }
}

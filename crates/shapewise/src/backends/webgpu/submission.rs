//! Work that was given to the device: ask whether it is done, wait for it, or await it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::context::Context;
use super::error::Result;

/// Whether the work is done, and who wants to know.
#[derive(Default)]
struct Done {
    is: bool,
    waker: Option<Waker>,
    watched: bool,
}

/// Work under way on the device. Dropping it does not stop the work.
///
/// It is also a future, for programs that must not block, as in a browser.
pub struct Submission {
    context: Arc<Context>,
    index: Option<wgpu::SubmissionIndex>,
    done: Option<Arc<Mutex<Done>>>,
}

impl Submission {
    pub(super) fn new(context: &Arc<Context>, index: Option<wgpu::SubmissionIndex>) -> Self {
        Self { context: Arc::clone(context), index, done: None }
    }

    /// Waits until the work is done.
    pub fn wait(&self) -> Result<()> {
        self.context.wait(self.index.clone(), None)
    }

    /// Waits at most this long. On a timeout the device counts as lost: a shader that never ends cannot be stopped.
    pub fn wait_within(&self, timeout: Duration) -> Result<()> {
        self.context.wait(self.index.clone(), Some(timeout))
    }

    /// Starts listening for the end of all work given to the device so far.
    fn listen(&mut self) -> Arc<Mutex<Done>> {
        let context = &self.context;
        let done = self.done.get_or_insert_with(|| {
            let done = Arc::new(Mutex::new(Done::default()));
            let noted = Arc::clone(&done);
            context.queue.on_submitted_work_done(move || {
                let mut done = noted.lock().unwrap_or_else(PoisonError::into_inner);
                done.is = true;
                let waker = done.waker.take();
                drop(done);
                waker.into_iter().for_each(Waker::wake);
            });
            done
        });
        Arc::clone(done)
    }

    /// Whether the work is done; does not wait.
    pub fn is_done(&mut self) -> Result<bool> {
        self.context.check()?;
        let done = self.listen();
        self.context.poll();
        let is = done.lock().unwrap_or_else(PoisonError::into_inner).is;
        Ok(is)
    }
}

impl Future for Submission {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut std::task::Context<'_>) -> Poll<Self::Output> {
        match self.is_done() {
            Ok(true) => return Poll::Ready(self.context.check()),
            Err(error) => return Poll::Ready(Err(error)),
            Ok(false) => {}
        }
        let done = self.listen();
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.is {
            return Poll::Ready(self.context.check());
        }
        done.waker = Some(task.waker().clone());
        // In a browser the callback comes by itself; elsewhere somebody has to wait for it.
        if !done.watched && cfg!(not(target_family = "wasm")) {
            done.watched = true;
            let (context, index) = (Arc::clone(&self.context), self.index.clone());
            drop(done);
            std::thread::spawn(move || context.wait(index, None));
        }
        Poll::Pending
    }
}

//! An open device and its queue, with everything that can go wrong with them noticed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::{Result, WebGpuError};

/// How long a failed command waits to hear whether the device is gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// What callbacks of the driver note.
#[derive(Default)]
struct Notes {
    gone: AtomicBool,
    hung: AtomicBool,
    lost: Mutex<Option<String>>,
    refused: Mutex<Option<String>>,
}

impl Notes {
    fn lose(&self, reason: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.gone.store(true, Ordering::Release);
    }
}

/// The device and queue of wgpu; everything of a [`super::WebGpuDevice`] shares one.
pub struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    notes: Arc<Notes>,
}

impl Context {
    pub fn new(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let notes = Arc::new(Notes::default());
        let noted = Arc::clone(&notes);
        device.set_device_lost_callback(move |reason, message| {
            let message = message.trim_end_matches('.');
            noted.lose(if message.is_empty() { format!("{reason:?}") } else { message.to_owned() });
        });
        // Without a handler wgpu panics in whatever thread the error is found.
        let noted = Arc::clone(&notes);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let text = error.to_string();
            tracing::error!("WebGPU: {text}");
            noted.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        }));
        Self { device, queue, notes }
    }

    /// An error if the device is gone or an earlier command was refused without anybody hearing of it.
    pub fn check(&self) -> Result<()> {
        if self.notes.gone.load(Ordering::Acquire) {
            let lost = self.notes.lost.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(WebGpuError::Lost {
                reason: lost.clone().unwrap_or_else(|| "no reason given".into()),
            });
        }
        match self.notes.refused.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(reason) => Err(WebGpuError::Refused { what: "an earlier command".into(), reason }),
            None => Ok(()),
        }
    }

    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        self.notes.gone.load(Ordering::Acquire)
    }

    /// Gives the device up: everything after this is an error.
    pub fn destroy(&self, reason: &str) {
        self.notes.lose(reason.to_owned());
        if !self.notes.hung.load(Ordering::Acquire) {
            self.device.destroy();
        }
    }

    /// Runs commands of wgpu and turns what it refuses into an error.
    pub fn scoped<T>(&self, what: &str, commands: impl FnOnce() -> T) -> Result<T> {
        if cfg!(target_family = "wasm") {
            // Nothing may wait in a browser: what is refused there is found by the next check.
            return Ok(commands());
        }
        let filters =
            [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let done = commands();
        let mut found = None;
        for scope in scopes.into_iter().rev() {
            found = pollster::block_on(scope.pop()).or(found);
        }
        match found {
            None => Ok(done),
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(self.blame(WebGpuError::OutOfMemory { requested: 0, reserved: 0, limit: None }))
            }
            Some(error) => {
                Err(self.blame(WebGpuError::Refused { what: what.to_owned(), reason: error.to_string() }))
            }
        }
    }

    /// The error, or the loss of the device if that is what it comes from.
    pub fn blame(&self, error: WebGpuError) -> WebGpuError {
        // The driver tells of a loss only when it is asked, and only after the work under way.
        let _ = self.device.poll(wgpu::PollType::Wait { submission_index: None, timeout: Some(PATIENCE) });
        if self.is_lost() { self.check().err().unwrap_or(error) } else { error }
    }

    /// Lets the driver run callbacks of finished work, without waiting.
    pub fn poll(&self) {
        // Only waiting can fail.
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    /// Waits for a submission, or for all of them.
    pub fn wait(&self, submission: Option<wgpu::SubmissionIndex>, timeout: Option<Duration>) -> Result<()> {
        self.check()?;
        if cfg!(target_family = "wasm") {
            let reason = "nothing may block in a browser; await the submission, or use `read_async`".into();
            return Err(WebGpuError::Unsupported { what: "to wait", reason });
        }
        let waited = self.device.poll(wgpu::PollType::Wait { submission_index: submission, timeout });
        match waited {
            Ok(_) => self.check(),
            Err(wgpu::PollError::Timeout) => {
                let waited = timeout.unwrap_or_default();
                self.notes.hung.store(true, Ordering::Release);
                self.notes.lose(format!("it did not answer within {waited:?}"));
                Err(WebGpuError::Timeout { waited })
            }
            Err(error) => {
                Err(self.blame(WebGpuError::Refused { what: "to wait".into(), reason: error.to_string() }))
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.notes.hung.load(Ordering::Acquire) {
            // Dropping a queue waits until it is idle, and this one may never be.
            std::mem::forget((self.device.clone(), self.queue.clone()));
        }
    }
}

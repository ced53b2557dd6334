//! The newest state without waiting for the sensors: they are read on a thread of their own.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::{Sensors, SystemState};

/// Reads sensors again and again until it is dropped.
pub struct Monitor {
    newest: Arc<ArcSwap<SystemState>>,
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Reads once before it returns, and then every so often.
    pub fn start(mut sensors: impl Sensors + 'static, every: Duration) -> std::io::Result<Self> {
        let newest = Arc::new(ArcSwap::from_pointee(sensors.sample()));
        let (stop, stopped) = mpsc::channel::<()>();
        let publish = Arc::clone(&newest);
        let thread = std::thread::Builder::new().name("shapewise-sensors".into()).spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                publish.store(Arc::new(sensors.sample()));
            }
        })?;
        Ok(Self { newest, stop: Some(stop), thread: Some(thread) })
    }

    /// The newest state; never waits.
    pub fn state(&self) -> Arc<SystemState> {
        self.newest.load_full()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the sensors has been reported on their thread already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensors::Trace;

    #[test]
    fn the_newest_state_is_published_until_the_end() {
        let state = |load| SystemState { load: Some(load), ..Default::default() };
        let trace = Trace { states: vec![state(0.0), state(0.5), state(1.0)] };
        let monitor = Monitor::start(trace.replay(), Duration::from_millis(1)).unwrap();
        while monitor.state().load != Some(1.0) {
            std::thread::yield_now();
        }
        drop(monitor);
    }

    #[test]
    fn it_ends_at_once_however_rarely_it_reads() {
        let monitor = Monitor::start(Trace::default().replay(), Duration::from_hours(1)).unwrap();
        assert_eq!(*monitor.state(), SystemState::default());
    }
}

//! Trials on a thread of their own: a candidate that does not return costs its time limit, not the campaign.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::search::Trial;
use super::workbench::CpuTrial;
use crate::Error;
use crate::Result;
use crate::backends::cpu::{CpuDevice, MemoryPool};
use crate::device::Device;
use crate::ops::Workload;
use crate::selection::Candidate;

/// How long a sample may take beyond what is expected of it: the search of a minute survives a few candidates that hang.
pub const LONGEST: Duration = Duration::from_secs(5);
/// How many times the expected time of a call a sample may take: it has four calls, and a model of plain code may be wrong by a
/// factor of fifty.
const PATIENCE: f64 = 200.0;

/// Candidates that are tried by another thread while this one watches the clock.
pub struct GuardedTrial {
    task: Task,
    limit: Duration,
    /// `None` after a candidate did not return: its thread cannot be ended, only left alone.
    worker: Option<Worker>,
}

/// What a thread needs to try candidates.
#[derive(Clone)]
struct Task {
    workload: Arc<Workload>,
    candidates: Arc<[Candidate]>,
    device: Arc<CpuDevice>,
}

struct Worker {
    points: Sender<usize>,
    answers: Receiver<Answer>,
}

enum Answer {
    Ready(Result<()>),
    Time(Result<f64, String>),
}

impl GuardedTrial {
    /// Makes up operands and computes what is right, `limit` long at most beyond what is expected.
    pub fn new(
        workload: &Workload,
        candidates: &[Candidate],
        device: &Arc<CpuDevice>,
        limit: Duration,
    ) -> Result<Self> {
        let task = Task {
            workload: Arc::new(workload.clone()),
            candidates: candidates.into(),
            device: Arc::clone(device),
        };
        let mut guarded = Self { task, limit, worker: None };
        guarded.worker = Some(guarded.start()?);
        Ok(guarded)
    }

    /// A thread that is ready to try.
    fn start(&self) -> Result<Worker> {
        let (points, asked) = mpsc::channel();
        let (told, answers) = mpsc::channel();
        let task = self.task.clone();
        let run = move || task.run(&asked, &told);
        let spawned = std::thread::Builder::new().name("shapewise-trial".into()).spawn(run);
        spawned.map_err(|error| Error::Unsupported {
            what: "a trial that may hang".into(),
            reason: format!("its thread could not be started: {error}"),
        })?;
        // The judge may be any candidate.
        let longest = (0..self.task.candidates.len()).map(|p| self.limit_of(p)).max().unwrap_or(self.limit);
        match wait(&answers, longest) {
            Ok(Answer::Ready(ready)) => ready.map(|()| Worker { points, answers }),
            _ => Err(Error::KernelFailed {
                kernel: "what the others are compared with".into(),
                reason: format!("did not return within {longest:?}"),
            }),
        }
    }

    fn limit_of(&self, point: usize) -> Duration {
        let candidate = &self.task.candidates[point];
        let expected = candidate.predicted.map(|p| p.seconds).or(candidate.roofline()).unwrap_or(0.0);
        self.limit.saturating_add(Duration::try_from_secs_f64(PATIENCE * expected).unwrap_or_default())
    }
}

impl Trial for GuardedTrial {
    fn sample(&mut self, point: usize) -> Result<f64, String> {
        let limit = self.limit_of(point);
        let worker = if let Some(worker) = self.worker.take() {
            worker
        } else {
            // The one that hangs may hold the threads for ever.
            let (info, memory) = (self.task.device.info().clone(), MemoryPool::new(None));
            self.task.device = Arc::new(CpuDevice::new(info, memory));
            self.start().map_err(|error| error.to_string())?
        };
        let answer = worker.points.send(point).map(|()| wait(&worker.answers, limit));
        match answer {
            Ok(Ok(Answer::Time(time))) => {
                self.worker = Some(worker);
                time
            }
            Ok(Err(RecvTimeoutError::Timeout)) => Err(format!("did not return within {limit:?}")),
            _ => Err("ended the thread that tried it".into()),
        }
    }
}

/// Waits in two parts: the clock goes on while a machine sleeps or a process is stopped, and the first part may end before whoever
/// is to answer has run again.
fn wait<T>(answers: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
    match answers.recv_timeout(limit / 2) {
        Err(RecvTimeoutError::Timeout) => answers.recv_timeout(limit / 2),
        answer => answer,
    }
}

impl Task {
    /// Answers until nobody asks.
    fn run(&self, asked: &Receiver<usize>, told: &Sender<Answer>) {
        let mut trial = match CpuTrial::new(&self.workload, &self.candidates, &self.device) {
            Ok(trial) => trial,
            Err(error) => {
                // Nobody listens after the limit; so it is below.
                let _ = told.send(Answer::Ready(Err(error)));
                return;
            }
        };
        let mut listens = told.send(Answer::Ready(Ok(()))).is_ok();
        while let (true, Ok(point)) = (listens, asked.recv()) {
            listens = told.send(Answer::Time(trial.sample(point))).is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::testing::relu;
    use super::super::workbench::testing::Own;
    use super::*;
    use crate::Runtime;
    use crate::selection::KernelHandle;

    static OVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_candidate_that_hangs_is_refused_and_the_others_go_on() {
        let runtime = Runtime::builder().threads(2).without_calibration().build().unwrap();
        let workload = relu(&[64], None);
        let mut candidates = runtime.selector().candidates(&workload).unwrap();
        let hangs = Own(|call| {
            call.cpu().threads().run(2, 2, &|_| {
                while !OVER.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            Ok(())
        });
        let last = candidates.len();
        candidates.push(Candidate { kernel: KernelHandle::Custom(Arc::new(hangs)), ..candidates[0].clone() });
        let device = &runtime.selector().knowledge.device;
        let mut trial = GuardedTrial::new(&workload, &candidates, device, Duration::from_secs(2)).unwrap();
        assert!(trial.sample(0).unwrap() > 0.0);
        let why = trial.sample(last).unwrap_err();
        assert!(why.starts_with("did not return within 2"), "{why}");
        for point in 0..last {
            assert!(trial.sample(point).unwrap() > 0.0, "{point}");
        }
        OVER.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_judge_that_fails_is_an_error() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let workload = relu(&[64], None);
        let usual = runtime.selector().candidates(&workload).unwrap().remove(0);
        let fails = Own(|_| panic!("at once"));
        let only = [Candidate { kernel: KernelHandle::Custom(Arc::new(fails)), ..usual }];
        let device = &runtime.selector().knowledge.device;
        let Err(error) = GuardedTrial::new(&workload, &only, device, LONGEST) else { panic!() };
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}

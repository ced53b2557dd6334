//! Checks a user's kernel against a trusted one before it may win.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::backends::cpu::{CpuDevice, Probe};
use crate::ops::{Bound, Call, Kernel, Variant, Workload};

use super::{Candidate, KernelHandle};

/// How long a kernel may take for its check before it counts as hanging, unless the user says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Up to this many operations the reference itself is the judge; above, the first other built-in kernel is,
/// because every built-in kernel is tested against the reference and the reference would take seconds.
const AFFORDABLE: f64 = 2e8;

/// The candidate whose answer counts as right.
pub(crate) fn judge(candidates: &[Candidate]) -> Option<&Candidate> {
    let built_in = || candidates.iter().filter(|c| !c.kernel.is_custom());
    let reference =
        built_in().find(|c| c.kernel.variant() == Variant::Naive && c.cost.operations <= AFFORDABLE);
    reference.or_else(|| built_in().next())
}

/// Runs the candidate on made-up data, in a thread of its own so that a hang can be noticed.
///
/// `Ok` has the seconds it took when warm; `Err` says what went wrong: a wrong answer, a failure, a panic or a hang.
pub(crate) fn verify(
    candidate: &Candidate,
    judge: Option<&Candidate>,
    workload: &Workload,
    device: &Arc<CpuDevice>,
    patience: Option<Duration>,
) -> Result<f64, String> {
    let Some(judge) = judge else {
        return Err("no built-in kernel takes this workload, so the answer cannot be checked".into());
    };
    let (sender, receiver) = mpsc::channel();
    let (kernel, judge, device) = (candidate.clone(), judge.clone(), Arc::clone(device));
    let workload = workload.clone();
    let run = move || {
        // The receiver is gone only after the patience ran out; then nobody needs the outcome.
        let _ = sender.send(compare(&kernel, &judge, &workload, &device));
    };
    if let Err(error) = std::thread::Builder::new().name("shapewise-check".into()).spawn(run) {
        return Err(format!("the check could not be started: {error}"));
    }
    let patience = patience.unwrap_or(PATIENCE);
    receiver
        .recv_timeout(patience)
        .unwrap_or_else(|_| Err(format!("did not finish its check within {} s", patience.as_secs_f64())))
}

fn compare(
    candidate: &Candidate,
    judge: &Candidate,
    workload: &Workload,
    device: &CpuDevice,
) -> Result<f64, String> {
    let mut expected = Probe::new(workload, device).map_err(|e| e.to_string())?;
    run(judge, &mut expected, workload, device)?;
    let mut found = Probe::new(workload, device).map_err(|e| e.to_string())?;
    run(candidate, &mut found, workload, device)?;
    found.same_outputs(&expected, workload).map_err(|difference| {
        format!("wrong answer against {} on made-up data: {difference}", judge.kernel.name())
    })?;
    // The first run met cold memory and may have been the compiler's or loader's; the next one is the kernel's own.
    let mut again = Probe::new(workload, device).map_err(|e| e.to_string())?;
    run(candidate, &mut again, workload, device)
}

/// Runs a candidate on a probe and returns the seconds it took.
fn run(
    candidate: &Candidate,
    probe: &mut Probe,
    workload: &Workload,
    device: &CpuDevice,
) -> Result<f64, String> {
    let mut call = probe.call(workload, &candidate.parameters, device);
    let start = Instant::now();
    run_caught(&candidate.kernel, &mut call).map_err(|failure| failure.to_string())?;
    Ok(start.elapsed().as_secs_f64())
}

/// How a launch went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LaunchFailure {
    /// The kernel said so itself.
    Refused(String),
    /// It panicked, so nothing about it can be trusted any more.
    Panicked(String),
}

impl fmt::Display for LaunchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.pad(text),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

/// Launches a kernel; a panic becomes an error.
pub(crate) fn run_caught(kernel: &KernelHandle, call: &mut Call<'_>) -> Result<(), LaunchFailure> {
    let kernel: &dyn Kernel = &**kernel;
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kernel.launch(call))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(LaunchFailure::Refused(error.to_string())),
        Err(panic) => Err(LaunchFailure::Panicked(panic_text(&*panic).to_owned())),
    }
}

/// Launches what is bound to its workload.
#[inline(always)]
pub(crate) fn run_bound(bound: &Bound, pointers: &[*mut u8]) -> Result<(), Panic> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bound.run(pointers)))
}

/// What a panic left.
pub(crate) type Panic = Box<dyn Any + Send>;

impl From<Panic> for LaunchFailure {
    #[cold]
    fn from(panic: Panic) -> Self {
        Self::Panicked(panic_text(&*panic).to_owned())
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

//! Checks a user's kernel against a trusted one before it may win.

use std::any::Any;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::backends::cpu::{CpuDevice, Probe};
use crate::ops::{Call, Kernel, Variant, Workload};

use super::{Candidate, KernelHandle};

/// How long a kernel may take for its check before it counts as hanging, unless the user says otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Up to this many operations the reference itself is the judge; above, the first other built-in kernel is,
/// because every built-in kernel is tested against the reference and the reference would take seconds.
const AFFORDABLE: f64 = 2e8;

/// Runs the candidate on made-up data, in a thread of its own so that a hang can be noticed.
///
/// `Err` says what went wrong: a wrong answer, a failure, a panic or a hang.
pub(crate) fn verify(
    candidate: &Candidate,
    trusted: &[Candidate],
    workload: &Workload,
    device: &Arc<CpuDevice>,
    patience: Option<Duration>,
) -> Result<(), String> {
    let built_in = || trusted.iter().filter(|c| !c.kernel.is_custom());
    let reference =
        built_in().find(|c| c.kernel.variant() == Variant::Naive && c.cost.operations <= AFFORDABLE);
    let Some(judge) = reference.or_else(|| built_in().next()) else {
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
) -> Result<(), String> {
    let mut expected = Probe::new(workload, device).map_err(|e| e.to_string())?;
    run_caught(&judge.kernel, &mut expected.call(workload, &judge.parameters, device))?;
    let mut found = Probe::new(workload, device).map_err(|e| e.to_string())?;
    run_caught(&candidate.kernel, &mut found.call(workload, &candidate.parameters, device))?;
    found.same_outputs(&expected, workload).map_err(|difference| {
        format!("wrong answer against {} on made-up data: {difference}", judge.kernel.name())
    })
}

/// Launches a kernel; a panic becomes an error.
pub(crate) fn run_caught(kernel: &KernelHandle, call: &mut Call<'_>) -> Result<(), String> {
    let kernel: &dyn Kernel = &**kernel;
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kernel.launch(call))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("panicked: {}", panic_text(&*panic))),
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

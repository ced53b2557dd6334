//! What calls ask for, kept instead of computed.

use std::sync::{Mutex, PoisonError};

use crate::backends::cpu::{CpuDevice, Probe};
use crate::error::Result;
use crate::ops::{Request, Workload};

/// Keeps the calls of a runtime that only listens.
#[derive(Default)]
pub(crate) struct Recorder {
    with_numbers: bool,
    calls: Mutex<Vec<Recorded>>,
}

/// A call that was asked for.
pub(crate) struct Recorded {
    pub workload: Workload,
    /// A copy of its operands, where numbers are kept too.
    pub operands: Option<Probe>,
}

impl Recorder {
    /// One that copies the operands as well.
    pub fn with_numbers() -> Self {
        Self { with_numbers: true, ..Self::default() }
    }

    /// Notes a call.
    pub fn note(&self, request: &Request<'_>, device: &CpuDevice) -> Result<()> {
        let workload = request.workload();
        let copy = || Probe::copy_of(request, &workload, device);
        let operands = self.with_numbers.then(copy).transpose()?;
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Recorded { workload, operands });
        Ok(())
    }

    /// What was noted so far, in the order of the calls.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

//! A launch with everything done that does not depend on where the operands lie.

use std::fmt;

/// A kernel's launch for one workload at its parameters: only the addresses are missing.
///
/// Calls of a few dozen nanoseconds feel what a launch finds out anew each time. Only built-in kernels make these, because
/// nothing between the call and the kernel checks the addresses again.
pub struct Bound(Box<Run>);

/// Gets the addresses of the operands.
type Run = dyn Fn(&[*mut u8]) + Send + Sync;

impl Bound {
    /// `run` gets the first elements of the workload's operands, in its order, under the promise of
    /// [`Operand`](crate::backends::cpu::Operand).
    pub(crate) fn new(run: impl Fn(&[*mut u8]) + Send + Sync + 'static) -> Self {
        Self(Box::new(run))
    }

    /// Computes the outputs from the inputs at these addresses.
    #[inline]
    pub(crate) fn run(&self, pointers: &[*mut u8]) {
        (self.0)(pointers);
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}

//! A launch with everything done that does not depend on where the operands lie.

use std::fmt;

/// A kernel's launch for one workload at its parameters: only the addresses are missing.
///
/// Calls of a few dozen nanoseconds feel what a launch finds out anew each time. Only built-in kernels make these, because
/// nothing between the call and the kernel checks the addresses again.
pub struct Bound(Form);

enum Form {
    Any(Box<Run>),
    Short(Box<RunShort>),
}

/// Gets the addresses of the operands.
type Run = dyn Fn(&[*mut u8]) + Send + Sync;

/// Gets the addresses of two inputs and the output, in registers; of one input, twice.
type RunShort = dyn Fn(*mut u8, *mut u8, *mut u8) + Send + Sync;

impl Bound {
    /// `run` gets the first elements of the workload's operands, in its order, under the promise of
    /// [`Operand`](crate::backends::cpu::Operand).
    pub(crate) fn new(run: impl Fn(&[*mut u8]) + Send + Sync + 'static) -> Self {
        Self(Form::Any(Box::new(run)))
    }

    /// The same for workloads with one or two inputs, the only one given twice, and one output: addresses that go through memory
    /// are late. Nothing in `run` can panic, so that nobody need catch it.
    pub(crate) fn short(run: impl Fn(*mut u8, *mut u8, *mut u8) + Send + Sync + 'static) -> Self {
        Self(Form::Short(Box::new(run)))
    }

    /// Computes the outputs from the inputs at these addresses.
    #[inline(always)]
    pub(crate) fn run(&self, pointers: &[*mut u8]) {
        match &self.0 {
            Form::Any(run) => run(pointers),
            Form::Short(run) => match *pointers {
                [x, out] => run(x, x, out),
                [x, y, out] => run(x, y, out),
                _ => miscounted(pointers),
            },
        }
    }

    /// The same where addresses stay in registers, for as many as the caller's compiler knows; tells whether there is such a launch.
    #[inline(always)]
    pub(crate) fn run_short<const N: usize>(&self, pointers: [*mut u8; N]) -> bool {
        match (&self.0, &pointers[..]) {
            (Form::Short(run), &[x, out]) => run(x, x, out),
            (Form::Short(run), &[x, y, out]) => run(x, y, out),
            _ => return false,
        }
        true
    }
}

#[cold]
fn miscounted(pointers: &[*mut u8]) {
    unreachable!("{} addresses were given for the operands of the workload", pointers.len());
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}

//! A call decided once, for hot loops over small tensors.

use arrayvec::ArrayVec;

use crate::backends::cpu::Near;
use crate::error::{Error, Result};
use crate::ops::{ALIGNMENT, MAX_OPERANDS, Request};
use crate::runtime::Runtime;
use crate::selection::Entry;
use crate::tensor::{DType, Layout, Tensor};

/// An operation on tensors of fixed shapes, strides and types, with its kernel already chosen.
///
/// Running it skips shape checks and the decision table; the memory may be another each time.
pub struct Prepared {
    runtime: Runtime,
    entry: Near<Entry>,
    operands: ArrayVec<Expected, MAX_OPERANDS>,
}

/// What a tensor must look like to be this operand.
struct Expected {
    dtype: DType,
    layout: Layout,
    /// The length of an operand that is one line, which is soon compared.
    line: Option<usize>,
    /// Bits of an address that are zero where it is aligned as it must be.
    low: usize,
    /// Bytes from the tensor's first element to the one the kernel starts at.
    shift: isize,
}

impl Prepared {
    /// `tensors` are type, layout and first element of the operands as the user sees them, in the request's order.
    pub(crate) fn new(
        runtime: &Runtime,
        request: &Request<'_>,
        tensors: &[(DType, Layout, *const u8)],
    ) -> Result<Self> {
        let workload = request.workload();
        let entry = Near::new(runtime.entry(&workload)?);
        let operands = tensors
            .iter()
            .zip(workload.operands().iter().zip(&request.pointers))
            .map(|(&(dtype, layout, start), (desc, &first))| Expected {
                dtype,
                layout,
                line: layout.as_line(),
                low: if desc.aligned { ALIGNMENT - 1 } else { 0 },
                shift: (first as isize).wrapping_sub(start as isize),
            })
            .collect();
        Ok(Self { runtime: runtime.clone(), entry, operands })
    }

    /// Name of the kernel that runs now; a race or a slower machine may change it.
    pub fn kernel(&self) -> String {
        self.entry.get().choice.candidate.kernel.name().to_owned()
    }

    /// Computes `output` from `inputs`, which look exactly like those it was prepared for.
    #[inline]
    pub fn run(&self, inputs: &[&Tensor], output: &mut Tensor) -> Result<()> {
        let Some((result, operands)) = self.operands.split_last().filter(|(_, o)| o.len() == inputs.len())
        else {
            return Err(self.miscounted(inputs.len()));
        };
        let mut pointers = [std::ptr::null_mut(); MAX_OPERANDS];
        let mut fits = true;
        for ((pointer, tensor), expected) in pointers.iter_mut().zip(inputs).zip(operands) {
            *pointer = tensor.view_first().cast_mut().wrapping_offset(expected.shift);
            fits &= expected.fits(tensor, *pointer);
        }
        let first = output.as_mut_ptr()?.wrapping_offset(result.shift);
        pointers[inputs.len()] = first;
        if !fits || !result.fits(output, first) {
            return Err(self.misfit(inputs, output));
        }
        self.runtime.launch_prepared(&self.entry, &pointers[..=inputs.len()])
    }

    #[cold]
    fn miscounted(&self, inputs: usize) -> Error {
        let needed = self.operands.len().saturating_sub(1);
        mismatch(format!("{inputs} inputs were given, {needed} are needed"))
    }

    /// Says which operand does not look as expected.
    #[cold]
    fn misfit(&self, inputs: &[&Tensor], output: &Tensor) -> Error {
        let tensors = inputs.iter().copied().chain([output]);
        let mut misfits = tensors.zip(&self.operands).enumerate().filter_map(|(i, (tensor, expected))| {
            let first = tensor.view_first().cast_mut().wrapping_offset(expected.shift);
            (!expected.fits(tensor, first)).then(|| expected.refuse(tensor, i))
        });
        misfits.next().unwrap_or_else(|| mismatch("an operand changed while it was looked at".into()))
    }
}

impl Expected {
    /// Whether a tensor, whose element the kernel starts at is `start`, can be this operand.
    #[inline(always)]
    fn fits(&self, tensor: &Tensor, start: *mut u8) -> bool {
        let alike = if self.line.is_some() {
            tensor.layout().as_line() == self.line && tensor.dtype() == self.dtype
        } else {
            self.looks_like(tensor)
        };
        alike && start.addr() & self.low == 0
    }

    #[inline(never)]
    fn looks_like(&self, tensor: &Tensor) -> bool {
        let layout = tensor.layout();
        tensor.dtype() == self.dtype
            && layout.shape == self.layout.shape
            && layout.strides == self.layout.strides
    }

    fn refuse(&self, tensor: &Tensor, i: usize) -> Error {
        mismatch(format!(
            "operand {i} is {} {} with strides {:?}{}, prepared was {} {} with strides {:?}; prepare another call for it",
            tensor.dtype(),
            tensor.layout().shape,
            tensor.layout().strides,
            if self.looks_like(tensor) { " at an unaligned address" } else { "" },
            self.dtype,
            self.layout.shape,
            self.layout.strides,
        ))
    }
}

fn mismatch(reason: String) -> Error {
    Error::ShapeMismatch { operation: "prepared call", reason }
}

//! A call decided once, for hot loops over small tensors.

use arrayvec::ArrayVec;

use crate::backends::cpu::Near;
use crate::error::{Error, Result, Thin};
use crate::ops::{ALIGNMENT, MAX_OPERANDS, Request};
use crate::runtime::Runtime;
use crate::selection::Entry;
use crate::tensor::{DType, Layout, Peeked, Tensor, Word};

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
    /// Type and layout, where a word holds them and the kernel starts at the first element: that is soon compared.
    word: Word,
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
                word: if first == start.cast_mut() {
                    Word::of(dtype, start, &layout).unaligned()
                } else {
                    Word::NONE
                },
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
        let few = match *inputs {
            [x] => output.peek_mut().and_then(|out| self.run_few([x.peek(), out])),
            [x, y] => output.peek_mut().and_then(|out| self.run_few([x.peek(), y.peek(), out])),
            _ => None,
        };
        match few {
            Some(done) => Ok(done?),
            None => self.run_any(inputs, output),
        }
    }

    /// A call of few operands that look as expected, by the thread that made the first one: the addresses stay in registers.
    #[inline(always)]
    fn run_few<const N: usize>(&self, operands: [Peeked; N]) -> Option<Thin> {
        let expected: &[Expected; N] = self.operands[..].try_into().ok()?;
        let (mut pointers, mut fits, mut i) = ([std::ptr::null_mut(); N], true, 0);
        while i < N {
            pointers[i] = operands[i].first.wrapping_offset(expected[i].shift);
            fits &= expected[i].fits(operands[i].word, pointers[i]);
            i += 1;
        }
        if fits { self.runtime.launch_short(&self.entry, pointers) } else { None }
    }

    /// Any call.
    #[inline(never)]
    fn run_any(&self, inputs: &[&Tensor], output: &mut Tensor) -> Result<()> {
        let Some((result, operands)) = self.operands.split_last().filter(|(_, o)| o.len() == inputs.len())
        else {
            return Err(self.miscounted(inputs.len()));
        };
        let mut pointers = [std::ptr::null_mut(); MAX_OPERANDS];
        let mut fits = true;
        for ((pointer, tensor), expected) in pointers.iter_mut().zip(inputs).zip(operands) {
            *pointer = tensor.view_first().cast_mut().wrapping_offset(expected.shift);
            fits &= expected.fits_any(tensor, *pointer);
        }
        let first = output.as_mut_ptr()?.wrapping_offset(result.shift);
        pointers[inputs.len()] = first;
        if !fits || !result.fits_any(output, first) {
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
            (!expected.fits_any(tensor, first)).then(|| expected.refuse(tensor, i))
        });
        misfits.next().unwrap_or_else(|| mismatch("an operand changed while it was looked at".into()))
    }
}

impl Expected {
    /// Whether a tensor of this word, whose element the kernel starts at is `start`, is known to be right for this operand.
    #[inline(always)]
    fn fits(&self, word: Word, start: *mut u8) -> bool {
        word.unaligned() == self.word && self.word != Word::NONE && start.addr() & self.low == 0
    }

    /// The same of any tensor.
    fn fits_any(&self, tensor: &Tensor, start: *mut u8) -> bool {
        self.looks_like(tensor) && start.addr() & self.low == 0
    }

    fn looks_like(&self, tensor: &Tensor) -> bool {
        tensor.dtype() == self.dtype
            && tensor.layout().shape == self.layout.shape
            && tensor.layout().strides == self.layout.strides
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

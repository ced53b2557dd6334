//! A call decided once, for hot loops over small tensors.

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;

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
    entry: ArcSwap<Entry>,
    operands: ArrayVec<Expected, MAX_OPERANDS>,
}

/// What a tensor must look like to be this operand.
struct Expected {
    dtype: DType,
    layout: Layout,
    aligned: bool,
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
        let entry = ArcSwap::new(runtime.entry(&workload)?);
        let operands = tensors
            .iter()
            .zip(workload.operands().iter().zip(&request.pointers))
            .map(|(&(dtype, layout, start), (desc, &first))| Expected {
                dtype,
                layout,
                aligned: desc.aligned,
                shift: (first as isize).wrapping_sub(start as isize),
            })
            .collect();
        Ok(Self { runtime: runtime.clone(), entry, operands })
    }

    /// Name of the kernel that runs now; a race or a slower machine may change it.
    pub fn kernel(&self) -> String {
        self.entry.load().choice.candidate.kernel.name().to_owned()
    }

    /// Computes `output` from `inputs`, which look exactly like those it was prepared for.
    pub fn run(&self, inputs: &[&Tensor], output: &mut Tensor) -> Result<()> {
        if inputs.len() + 1 != self.operands.len() {
            return Err(mismatch(format!(
                "{} inputs were given, {} are needed",
                inputs.len(),
                self.operands.len() - 1
            )));
        }
        let mut pointers = ArrayVec::<*mut u8, MAX_OPERANDS>::new();
        for (i, (tensor, expected)) in inputs.iter().zip(&self.operands).enumerate() {
            pointers.push(expected.address(tensor, tensor.view_first().cast_mut(), i)?);
        }
        let first = output.as_mut_ptr()?;
        let last = inputs.len();
        pointers.push(self.operands[last].address(output, first, last)?);
        self.runtime.launch_prepared(&self.entry, &pointers)
    }
}

impl Expected {
    #[inline]
    fn address(&self, tensor: &Tensor, first: *mut u8, i: usize) -> Result<*mut u8> {
        let same = tensor.dtype() == self.dtype
            && tensor.layout().shape == self.layout.shape
            && tensor.layout().strides == self.layout.strides;
        let start = first.wrapping_offset(self.shift);
        if same && (!self.aligned || (start as usize).is_multiple_of(ALIGNMENT)) {
            return Ok(start);
        }
        Err(mismatch(format!(
            "operand {i} is {} {} with strides {:?}{}, prepared was {} {} with strides {:?}; prepare another call for it",
            tensor.dtype(),
            tensor.layout().shape,
            tensor.layout().strides,
            if same { " at an unaligned address" } else { "" },
            self.dtype,
            self.layout.shape,
            self.layout.strides,
        )))
    }
}

fn mismatch(reason: String) -> Error {
    Error::ShapeMismatch { operation: "prepared call", reason }
}

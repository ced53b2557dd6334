//! One call: the request an operation builds, and what a kernel gets.

use std::marker::PhantomData;
use std::ops::Deref;

use arrayvec::ArrayVec;

use super::words::Words;
use super::{KernelError, MAX_OPERANDS, Operation, Parameters, Workload};
use crate::backends::cpu::{CpuDevice, Operand};
use crate::tensor::{DType, Element, Layout, TensorView, TensorViewMut, is_aligned};

/// The operation of a request: its own, or one that outlives it and need not be copied.
#[derive(Debug)]
pub enum Asked<'a> {
    /// The request's own.
    Own(Operation),
    /// Somebody else's.
    Lent(&'a Operation),
}

impl From<Operation> for Asked<'_> {
    #[inline]
    fn from(operation: Operation) -> Self {
        Self::Own(operation)
    }
}

impl<'a> From<&'a Operation> for Asked<'a> {
    #[inline]
    fn from(operation: &'a Operation) -> Self {
        Self::Lent(operation)
    }
}

impl Deref for Asked<'_> {
    type Target = Operation;

    #[inline]
    fn deref(&self) -> &Operation {
        match self {
            Self::Own(operation) => operation,
            Self::Lent(operation) => operation,
        }
    }
}

/// What an operation asks the runtime to compute: a workload and the memory it is about.
///
/// Requests are large: they are filled where they lie, because moving one costs more than a small kernel.
#[derive(Debug)]
pub struct Request<'a> {
    operation: Asked<'a>,
    pub(crate) words: Words,
    pub(crate) pointers: ArrayVec<*mut u8, MAX_OPERANDS>,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Request<'a> {
    /// An operation without operands yet; inputs are added first, then outputs.
    #[inline]
    pub fn new(operation: impl Into<Asked<'a>>) -> Self {
        let operation = operation.into();
        Self { operation, words: Words::new(), pointers: ArrayVec::new(), memory: PhantomData }
    }

    /// The next input.
    #[inline]
    pub fn input(&mut self, view: &TensorView<'a>) {
        self.push(view.first().cast_mut(), view.dtype(), view.layout());
    }

    /// The next input, which is contiguous, as a single line of elements.
    #[inline]
    pub(crate) fn input_line(&mut self, view: &TensorView<'a>, len: usize) {
        debug_assert!(view.layout().is_contiguous() && view.len() == len);
        self.push_line(view.first().cast_mut(), view.dtype(), len);
    }

    /// The next output, which is contiguous, as a single line of elements.
    #[inline]
    pub(crate) fn output_line(&mut self, view: &mut TensorViewMut<'a>, len: usize) {
        debug_assert!(view.layout().is_contiguous() && view.len() == len);
        self.push_line(view.first(), view.dtype(), len);
        self.words.count_output();
    }

    /// The next output.
    #[inline]
    pub fn output(&mut self, mut view: TensorViewMut<'a>) {
        self.output_at(&mut view);
    }

    /// The next output, without moving its view.
    #[inline]
    pub(crate) fn output_at(&mut self, view: &mut TensorViewMut<'a>) {
        self.push(view.first(), view.dtype(), view.layout());
        self.words.count_output();
    }

    /// The next input, which is the very memory that will be the output.
    #[inline]
    pub fn input_in_place(&mut self, view: &mut TensorViewMut<'_>) {
        self.push(view.first(), view.dtype(), view.layout());
        self.words.set_in_place();
    }

    /// Writes the operation before the first operand; in `new` it would make the request move.
    #[inline]
    fn begin(&mut self) {
        if self.pointers.is_empty() {
            self.words.operation(&self.operation);
        }
    }

    #[inline]
    fn push(&mut self, first: *mut u8, dtype: DType, layout: &Layout) {
        self.begin();
        self.words.operand(dtype, is_aligned(first), &layout.shape, &layout.strides);
        self.pointers.push(first);
    }

    #[inline(always)]
    fn push_line(&mut self, first: *mut u8, dtype: DType, len: usize) {
        self.begin();
        self.words.line(dtype, is_aligned(first), len);
        self.pointers.push(first);
    }

    /// A known workload on memory of its layouts.
    pub(crate) fn again(workload: &Workload, pointers: &[*mut u8]) -> Self {
        Self {
            operation: Asked::Own(*workload.operation()),
            words: Words::of(workload),
            pointers: pointers.iter().copied().collect(),
            memory: PhantomData,
        }
    }

    /// The workload.
    pub fn workload(&self) -> Workload {
        self.words.workload(*self.operation)
    }
}

/// What a kernel gets: the workload, the chosen parameters, the device, and the operands' memory.
pub struct Call<'a> {
    /// What is asked for.
    pub workload: &'a Workload,
    /// The chosen values of the kernel's tunables.
    pub parameters: &'a Parameters,
    /// What is read.
    pub inputs: ArrayVec<Operand<'a>, MAX_OPERANDS>,
    /// What is written.
    pub outputs: ArrayVec<Operand<'a>, 4>,
    device: &'a CpuDevice,
}

impl<'a> Call<'a> {
    /// `pointers` are the first elements of the workload's operands, in its order.
    pub(crate) fn new(
        workload: &'a Workload,
        parameters: &'a Parameters,
        pointers: &[*mut u8],
        device: &'a CpuDevice,
    ) -> Self {
        let mut call = Self::empty(workload, parameters, device);
        call.fill(pointers);
        call
    }

    /// A call without operands yet. Like a request it is filled where it lies.
    #[inline]
    pub(crate) fn empty(workload: &'a Workload, parameters: &'a Parameters, device: &'a CpuDevice) -> Self {
        Self { workload, parameters, inputs: ArrayVec::new(), outputs: ArrayVec::new(), device }
    }

    /// The first elements of the workload's operands, in its order.
    #[inline]
    pub(crate) fn fill(&mut self, pointers: &[*mut u8]) {
        let (inputs, outputs) = (self.workload.inputs(), self.workload.outputs());
        let (read, written) = pointers.split_at(inputs.len().min(pointers.len()));
        for (&first, desc) in read.iter().zip(inputs) {
            self.inputs.push(Operand::new(first, desc));
        }
        for (&first, desc) in written.iter().zip(outputs) {
            self.outputs.push(Operand::new(first, desc));
        }
    }

    /// The CPU that runs the kernel: threads and scratch memory.
    #[inline]
    pub fn cpu(&self) -> &'a CpuDevice {
        self.device
    }

    /// Input `i` as a slice, if it is contiguous, of type `T` and not the memory of the output.
    #[inline]
    pub fn input<T: Element + bytemuck::AnyBitPattern>(&self, i: usize) -> Result<&'a [T], KernelError> {
        if self.workload.in_place() && self.is_output(i) {
            let text =
                format!("input {i} is the memory of the output; read it from there, element by element");
            return Err(KernelError(text.into()));
        }
        self.inputs.get(i).and_then(Operand::slice).ok_or_else(|| no_slice("input", i, T::DTYPE))
    }

    fn is_output(&self, i: usize) -> bool {
        let address = self.inputs.get(i).map(Operand::address);
        self.outputs.iter().any(|output| Some(output.address()) == address)
    }

    /// Output `i` as a slice to be written, if it is contiguous and of type `T`.
    #[inline]
    pub fn output<T: Element + bytemuck::AnyBitPattern>(
        &mut self,
        i: usize,
    ) -> Result<&mut [T], KernelError> {
        self.outputs.get_mut(i).and_then(Operand::slice_mut).ok_or_else(|| no_slice("output", i, T::DTYPE))
    }
}

fn no_slice(which: &str, i: usize, dtype: DType) -> KernelError {
    let text =
        format!("{which} {i} is not a contiguous slice of {dtype}; constrain the kernel or walk the strides");
    KernelError(text.into())
}

//! Operands for checking and timing kernels side by side: made up, or copied from a call.

use super::{CpuDevice, PooledBytes};
use crate::error::Result;
use crate::ops::sparse::made_up::structure;
use crate::ops::{Call, Parameters, Request, TensorDesc, Workload};
use crate::tensor::{DType, Layout, TensorView};
use half::{bf16, f16};
use num_complex::Complex;

/// Memory for every operand of a workload; inputs hold the same made-up numbers each time, or a copy of a call's.
pub struct Probe {
    buffers: Vec<(PooledBytes, Layout)>,
}

impl Probe {
    /// Allocates and fills operands under the workload's own layouts.
    pub fn new(workload: &Workload, device: &CpuDevice) -> Result<Self> {
        let mut buffers = Vec::new();
        for (i, operand) in workload.operands().iter().enumerate() {
            let (layout, elements) = spanning(operand);
            let mut bytes = device.scratch(elements * operand.dtype.size())?;
            // In place, the output holds the first input before it holds the result.
            let numbers = if workload.in_place() && i == workload.inputs().len() { 0 } else { i };
            if let Some(structure) = structure(workload, i) {
                bytes.copy_from_slice(bytemuck::cast_slice(&structure));
            } else {
                let (below, scale) = (workload.indices_below(i), workload.magnitude(i));
                fill(&mut bytes, operand.dtype, numbers as u64 + 1, below, scale);
            }
            buffers.push((bytes, layout));
        }
        Ok(Self { buffers })
    }

    /// The numbers of a request in memory of their own; outputs are zeros.
    pub(crate) fn copy_of(request: &Request<'_>, workload: &Workload, device: &CpuDevice) -> Result<Self> {
        let mut buffers = Vec::new();
        for (i, operand) in workload.operands().iter().enumerate() {
            let (layout, elements) = spanning(operand);
            let size = operand.dtype.size();
            let mut bytes = device.scratch(elements * size)?;
            let is_input = i < workload.inputs().len() || workload.in_place() && i == workload.inputs().len();
            if is_input && elements > 0 {
                // SAFETY: a request borrows its operands' memory, and views were checked to hold every element of their
                // layout, so all from the lowest to the highest one can be read.
                let numbers = unsafe {
                    let lowest = request.pointers[i].sub(layout.offset * size);
                    std::slice::from_raw_parts(lowest, elements * size)
                };
                bytes.copy_from_slice(numbers);
            } else {
                bytes.fill(0);
            }
            buffers.push((bytes, layout));
        }
        Ok(Self { buffers })
    }

    /// The same numbers once more.
    pub(crate) fn again(&self, device: &CpuDevice) -> Result<Self> {
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for (bytes, layout) in &self.buffers {
            let mut copy = device.scratch(bytes.len())?;
            copy.copy_from_slice(bytes);
            buffers.push((copy, *layout));
        }
        Ok(Self { buffers })
    }

    /// A call on this memory.
    pub fn call<'a>(
        &'a mut self,
        workload: &'a Workload,
        parameters: &'a Parameters,
        device: &'a CpuDevice,
    ) -> Call<'a> {
        Call::new(workload, parameters, &self.pointers(workload), device)
    }

    /// A request for the runtime on this memory.
    pub fn request<'a>(&'a mut self, workload: &Workload) -> Request<'a> {
        Request::again(workload, &self.pointers(workload))
    }

    /// The first element of every operand.
    fn pointers(&mut self, workload: &Workload) -> Vec<*mut u8> {
        let sizes = workload.operands().iter().map(|o| o.dtype.size());
        let mut pointers: Vec<*mut u8> = self
            .buffers
            .iter_mut()
            .zip(sizes)
            .map(|((bytes, layout), size)| bytes.as_mut_ptr().wrapping_add(layout.offset * size))
            .collect();
        if workload.in_place() {
            pointers[0] = pointers[workload.inputs().len()];
        }
        pointers
    }

    /// Whether every output agrees with another probe's within the tolerance of its element type.
    pub fn same_outputs(&self, expected: &Self, workload: &Workload) -> std::result::Result<(), String> {
        let first = workload.inputs().len();
        for (i, desc) in workload.outputs().iter().enumerate() {
            let found = self.values(first + i, desc)?;
            let wanted = expected.values(first + i, desc)?;
            let scale = wanted.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
            let allowed = tolerance(desc.dtype) * scale.max(f64::MIN_POSITIVE);
            for (at, (&f, &w)) in found.iter().zip(&wanted).enumerate() {
                let same = f == w || (f.is_nan() && w.is_nan()) || (f - w).abs() <= allowed;
                if !same {
                    return Err(format!(
                        "output {i} has {f} where {w} is right (element {at} in row-major order)"
                    ));
                }
            }
        }
        Ok(())
    }

    /// An operand's numbers in row-major order; complex ones as two.
    fn values(&self, i: usize, desc: &TensorDesc) -> std::result::Result<Vec<f64>, String> {
        let (bytes, layout) = &self.buffers[i];
        let view = TensorView::new(bytes, desc.dtype, *layout).map_err(|e| e.to_string())?;
        to_f64(&view).map_err(|e| e.to_string())
    }
}

/// Relative to the largest magnitude in the output: sums of many rounded terms in any order stay far below.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::C32 => 1e-4,
        DType::F64 | DType::C64 => 1e-10,
        DType::F16 => 1e-2,
        DType::BF16 => 5e-2,
        DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::U32 | DType::I64 | DType::Bool => 0.0,
    }
}

/// The operand's layout in memory of its own, and how many elements that memory needs.
fn spanning(desc: &TensorDesc) -> (Layout, usize) {
    if desc.is_empty() {
        return (Layout { shape: desc.shape, strides: desc.strides, offset: 0 }, 0);
    }
    let (mut low, mut high) = (0usize, 0usize);
    for (&size, &stride) in desc.shape.iter().zip(desc.strides.iter()) {
        let reach = (size - 1) * stride.unsigned_abs();
        if stride < 0 {
            low += reach;
        } else {
            high += reach;
        }
    }
    (Layout { shape: desc.shape, strides: desc.strides, offset: low }, low + high + 1)
}

fn to_f64(view: &TensorView<'_>) -> Result<Vec<f64>> {
    macro_rules! widen {
        ($t:ty, $f:expr) => {
            view.to_vec::<$t>()?.into_iter().map($f).collect()
        };
    }
    Ok(match view.dtype() {
        DType::F32 => widen!(f32, f64::from),
        DType::F64 => view.to_vec::<f64>()?,
        DType::F16 => widen!(f16, f64::from),
        DType::BF16 => widen!(bf16, f64::from),
        DType::I8 => widen!(i8, f64::from),
        DType::I16 => widen!(i16, f64::from),
        DType::U8 => widen!(u8, f64::from),
        DType::I32 => widen!(i32, f64::from),
        DType::U32 => widen!(u32, f64::from),
        DType::I64 => widen!(i64, |x| x as f64),
        DType::Bool => widen!(bool, |x| f64::from(u8::from(x))),
        DType::C32 => view
            .to_vec::<Complex<f32>>()?
            .into_iter()
            .flat_map(|z| [f64::from(z.re), f64::from(z.im)])
            .collect(),
        DType::C64 => view.to_vec::<Complex<f64>>()?.into_iter().flat_map(|z| [z.re, z.im]).collect(),
    })
}

/// Numbers in [-1, 1) · scale (integers: small ones) from a fixed generator; indices on both sides of zero below a bound.
fn fill(bytes: &mut [u8], dtype: DType, seed: u64, indices_below: Option<usize>, scale: f64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    macro_rules! each {
        ($t:ty, $f:expr) => {
            for chunk in bytes.chunks_exact_mut(size_of::<$t>()) {
                let value: $t = $f(next());
                chunk.copy_from_slice(bytemuck::bytes_of(&value));
            }
        };
    }
    let bound = indices_below.unwrap_or(0) as f64;
    match dtype {
        // Truncation keeps them inside; the first few of a long axis are as likely as the last.
        DType::I32 if indices_below.is_some() => each!(i32, |x: f64| (x * bound) as i32),
        DType::U32 if indices_below.is_some() => each!(u32, |x: f64| (x.abs() * (bound - 1.0)) as u32),
        DType::I64 if indices_below.is_some() => each!(i64, |x: f64| (x * bound) as i64),
        DType::F32 | DType::C32 => each!(f32, |x: f64| (x * scale) as f32),
        DType::F64 | DType::C64 => each!(f64, |x: f64| x * scale),
        DType::F16 => each!(f16, |x: f64| f16::from_f64(x * scale)),
        DType::BF16 => each!(bf16, |x: f64| bf16::from_f64(x * scale)),
        DType::I16 => each!(i16, |x: f64| (x * 16.0) as i16),
        DType::I8 => each!(i8, |x: f64| (x * 16.0) as i8),
        DType::U8 => each!(u8, |x: f64| (x.abs() * 16.0) as u8),
        DType::I32 => each!(i32, |x: f64| (x * 16.0) as i32),
        DType::U32 => each!(u32, |x: f64| (x.abs() * 16.0) as u32),
        DType::I64 => each!(i64, |x: f64| (x * 16.0) as i64),
        DType::Bool => each!(u8, |x: f64| u8::from(x > 0.0)),
    }
}

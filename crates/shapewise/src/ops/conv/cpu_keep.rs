//! Weights in the forms that kernels read, made once.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::cpu_direct as direct;
use super::cpu_gemm::{Cut, pack_weights};
use super::cpu_winograd::transform_weights;
use super::cpu_winograd_forms::{Four, Two};
use super::cpu_winograd_tiles::Tiles;
use super::geometry::Geometry;
use super::{Kept, KeptForm};
use crate::backends::cpu::real::Real;
use crate::device::Device;
use crate::error::Result;
use crate::ops::matmul::cpu_micro::wide_shape;
use crate::ops::matmul::cpu_problem::Real as Computed;
use crate::ops::matmul::plan::Blocks;
use crate::runtime::Runtime;
use crate::tensor::{DType, Shape, Tensor, TensorView};

/// The weights (G×O/G×C/G×kd×kh×kw) in a kernel's form.
pub(super) fn keep(runtime: &Runtime, kept: Kept, weights: &TensorView<'_>) -> Result<Tensor> {
    let g = Geometry::of_weights(weights.layout());
    let dtype = if weights.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let elements = match (kept.form, dtype) {
        (KeptForm::Panels, _) => g.groups * g.o * g.c * g.taps(),
        (KeptForm::Blocks, DType::F64) => g.groups * direct::Cut::new::<f64>(&g, kept.isa).weights(),
        (KeptForm::Blocks, _) => g.groups * direct::Cut::new::<f32>(&g, kept.isa).weights(),
        (KeptForm::WinogradTwo, _) => g.groups * Tiles::new::<f32>(&g, kept.isa, 2).weights(),
        (KeptForm::WinogradFour, _) => g.groups * Tiles::new::<f32>(&g, kept.isa, 4).weights(),
    };
    let mut out = runtime.allocate(&Shape::new(&[elements])?, dtype)?;
    match weights.dtype() {
        DType::F64 if kept.form == KeptForm::Blocks => fill_blocks::<f64>(kept, &g, weights, &mut out)?,
        DType::F32 if kept.form == KeptForm::Blocks => fill_blocks::<f32>(kept, &g, weights, &mut out)?,
        DType::F64 => fill::<f64>(runtime, kept, &g, weights, &mut out)?,
        DType::F16 => fill_single::<f16>(runtime, kept, &g, weights, &mut out)?,
        DType::BF16 => fill_single::<bf16>(runtime, kept, &g, weights, &mut out)?,
        _ => fill_single::<f32>(runtime, kept, &g, weights, &mut out)?,
    }
    Ok(out)
}

fn fill_single<T: Real<Wide = f32>>(
    runtime: &Runtime,
    kept: Kept,
    g: &Geometry,
    weights: &TensorView<'_>,
    out: &mut Tensor,
) -> Result<()> {
    let outputs = match kept.form {
        // Nobody asks for blocks of 16-bit floats: the direct kernels refuse them.
        KeptForm::Panels | KeptForm::Blocks => return fill::<T>(runtime, kept, g, weights, out),
        KeptForm::WinogradTwo => 2,
        KeptForm::WinogradFour => 4,
    };
    let tiles = Tiles::new::<f32>(g, kept.isa, outputs);
    let mut own = runtime.device().scratch(2 * tiles.turned() * size_of::<f32>())?;
    let (own, w) = (own.as_mut_ptr().cast::<f32>(), weights.first().cast::<T>());
    let to = out.view_mut()?.first().cast::<f32>();
    for i in 0..g.groups * tiles.groups.blocks {
        let (of, group) = (i / tiles.groups.blocks, i % tiles.groups.blocks);
        let (at, plane) = tiles.weights_of(group);
        let (w, to) = (w.wrapping_offset(of as isize * g.w[0]), to.wrapping_add(of * tiles.weights() + at));
        // SAFETY: the weights are a checked view, and both memories are as large as was asked for.
        unsafe {
            if outputs == 2 {
                transform_weights::<T, Two>(g, &tiles, kept.isa, group, w, own, (to, plane));
            } else {
                transform_weights::<T, Four>(g, &tiles, kept.isa, group, w, own, (to, plane));
            }
        }
    }
    Ok(())
}

fn fill_blocks<W: Computed>(
    kept: Kept,
    g: &Geometry,
    weights: &TensorView<'_>,
    out: &mut Tensor,
) -> Result<()> {
    let cut = direct::Cut::new::<W>(g, kept.isa);
    let (w, to) = (weights.first().cast::<W>(), out.view_mut()?.first().cast::<W>());
    for i in 0..g.groups * cut.blocks {
        let (group, block) = (i / cut.blocks, i % cut.blocks);
        let from = w.wrapping_offset(group as isize * g.w[0]);
        // SAFETY: the weights are a checked view, and there is room for all blocks.
        unsafe { cut.pack(g, block, from, to.wrapping_add(i * cut.block * cut.k)) };
    }
    Ok(())
}

fn fill<T: Real>(
    runtime: &Runtime,
    kept: Kept,
    g: &Geometry,
    weights: &TensorView<'_>,
    out: &mut Tensor,
) -> Result<()>
where
    T::Wide: Computed,
{
    let device = runtime.device();
    let cut = Cut::new::<T::Wide>(g, kept.isa, 1, device.info(), Blocks::default());
    let rows = wide_shape(kept.isa.register_bytes()).0 * cut.k;
    let mut row = device.scratch(rows * size_of::<T::Wide>())?;
    let row = row.as_mut_ptr().cast::<T::Wide>();
    let (w, to) = (weights.first().cast::<T>(), out.view_mut()?.first().cast::<T::Wide>());
    for i in 0..g.groups * cut.rows.blocks {
        let which = (i / cut.rows.blocks, i % cut.rows.blocks);
        // SAFETY: the weights are a checked view, and both memories are as large as was asked for.
        unsafe { pack_weights(g, &cut, kept.isa, which, w, row, to) };
    }
    Ok(())
}

//! Weights in panels, in the order in which the products read them.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{Plan, Way};
use super::problem::Problem;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::ops::Parameters;
use crate::ops::matmul::cpu_pack::{PackPanels, Part as Panel};
use crate::ops::matmul::cpu_problem::{LanesTask, Real, panel_width};
use crate::tensor::{DType, Element, Tensor, TensorView};

/// Weights of the inputs, or those of the state, and where their panels go.
#[derive(Clone, Copy)]
pub(super) struct Section<T> {
    pub weights: *const T,
    /// Strides along rows and columns.
    pub strides: [isize; 2],
    pub panels: *mut T,
}

/// Packs one block of hidden units of a section: pieces of steps, in each a panel for every gate. If a flag is given, it is lowered
/// where a weight is infinite or NaN.
///
/// # Safety
/// The section is the layer's (`of_state` says which), and its panels have the plan's size.
pub(super) unsafe fn block<T: Real>(
    p: &Problem,
    plan: &Plan,
    of_state: bool,
    section: Section<T>,
    block: usize,
    finite: Option<&AtomicBool>,
) {
    let (unit, width, [rs, cs]) = (block * plan.width, plan.width, section.strides);
    let pieces = plan.pieces(p)[usize::from(of_state)];
    let mut panels = section.panels.wrapping_add(block * plan.block[usize::from(of_state)]);
    for (from, depth) in (0..pieces.blocks).map(|i| pieces.piece(i)) {
        for gate in 0..p.cell.gates() {
            let first = (gate * p.hidden + unit) as isize * rs + from as isize * cs;
            let part = Panel {
                at: section.weights.wrapping_offset(first),
                across: rs,
                along: cs,
                width: width.min(p.hidden - unit),
                depth,
            };
            T::run(plan.isa, PackPanels { part, width, pitch: width, panels, apart: 0 });
            if let Some(flag) = finite {
                T::run(plan.isa, Finite { at: panels, len: depth * width, flag });
            }
            panels = panels.wrapping_add(depth * width);
        }
    }
}

/// Elements of kept weights: panels of the inputs, panels of the state, and a number that is one if all of those are finite.
pub(super) fn kept_elements(p: &Problem, isa: Isa) -> [usize; 3] {
    let width = if p.dtype == DType::F64 { panel_width::<f64>(isa) } else { panel_width::<f32>(isa) };
    let lines = p.cell.gates() * p.hidden.next_multiple_of(width);
    [lines * p.input, lines * p.hidden, 1]
}

/// Where kept weights of the inputs and of the state start.
pub(super) fn kept<T>(p: &Problem, isa: Isa, at: *const T) -> [*const T; 2] {
    [at, at.wrapping_add(kept_elements(p, isa)[0])]
}

/// Whether all kept weights of the state are finite.
///
/// # Safety
/// There are as many elements as [`kept_elements`] says.
pub(super) unsafe fn kept_finite<T: Real>(p: &Problem, isa: Isa, at: *const T) -> bool {
    let [of_input, of_state, _] = kept_elements(p, isa);
    // SAFETY: the caller's promise.
    unsafe { *at.add(of_input + of_state) == T::ONE }
}

/// Packs weights to be kept; those of the inputs come first.
pub(super) fn keep<T: Real + Element>(
    p: &Problem,
    isa: Isa,
    weights: &[TensorView<'_>; 2],
    panels: &mut Tensor,
    device: &DeviceInfo,
) -> Result<()> {
    // Panels are padded with whatever is there, which must be finite.
    panels.bytes_mut()?.fill(0);
    let plan = Plan::new(p, isa, Way::Fused, &Parameters::new(), device);
    let [of_input, of_state, _] = kept_elements(p, isa);
    let (start, finite) = (panels.view_mut()?.first().cast::<T>(), AtomicBool::new(true));
    for (at, view) in weights.iter().enumerate() {
        let strides = [view.strides()[0], view.strides()[1]];
        let to = start.wrapping_add(if at == 0 { 0 } else { of_input });
        let section = Section { weights: view.first().cast(), strides, panels: to };
        for i in 0..plan.blocks {
            // SAFETY: the weights are checked views of the layer's shapes, and the panels have their size.
            unsafe { block(p, &plan, at == 1, section, i, (at == 1).then_some(&finite)) };
        }
    }
    let all = if finite.into_inner() { T::ONE } else { T::ZERO };
    // SAFETY: the last element.
    unsafe { start.add(of_input + of_state).write(all) };
    Ok(())
}

/// Looks at whole vectors, and lowers the flag if one has an infinity or a NaN.
struct Finite<'a, T> {
    at: *const T,
    len: usize,
    flag: &'a AtomicBool,
}

impl<T: Real> LanesTask<T> for Finite<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let zero = s.splat(T::ZERO);
        // Zero times anything finite is zero, and two chains of sums overlap.
        let (mut even, mut odd) = (zero, zero);
        for i in 0..self.len / S::LANES {
            // SAFETY: whoever made the task gave this many elements.
            let x = unsafe { s.load(self.at.add(i * S::LANES)) };
            (even, odd) = (odd, s.mul_add(x, zero, even));
        }
        let sum = s.add(even, odd);
        if s.mask_bits(s.ne(sum, sum)) != 0 {
            self.flag.store(false, Ordering::Relaxed);
        }
    }
}

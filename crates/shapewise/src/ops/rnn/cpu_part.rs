//! A part of one step: some sequences and some blocks of hidden units, each block's gates right after its sums.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::plan::Plan;
use super::problem::Problem;
use super::{cpu_gates, cpu_products};
use crate::backends::cpu::simd::Lanes;
use crate::ops::matmul::cpu_problem::{LanesTask, Real, Split};

/// What all parts of a call share.
pub(super) struct Layer<T> {
    pub p: Problem,
    pub plan: Plan,
    pub x: *const T,
    pub y: *mut T,
    pub w_ih: *const T,
    pub w_hh: *const T,
    /// Weights of the inputs and of the state, every block's in the order they are read in, if they are packed.
    pub packed: [*const T; 2],
    /// For each sum of a unit, padded.
    pub bias: *mut T,
    /// The memory of an LSTM: rows of the plan's pitch.
    pub memory: *mut T,
    /// The lengths and their distance, if there are any.
    pub lengths: Option<(*const u32, isize)>,
}

// SAFETY: inputs are only read, and every part writes states, sums and results of its own.
unsafe impl<T: Sync> Sync for Layer<T> {}

impl<T> Layer<T> {
    /// Steps of a sequence.
    #[inline(always)]
    pub fn length(&self, row: usize) -> usize {
        // SAFETY: there is a length for every sequence.
        self.lengths.map_or(self.p.steps, |(at, apart)| unsafe { *at.offset(row as isize * apart) } as usize)
    }

    /// How many of these rows, from the first on, hold all sequences that go on at a step.
    #[inline(always)]
    fn active(&self, time: usize, first: usize, rows: usize) -> usize {
        let mut active = rows;
        while active > 0 && self.length(first + active - 1) <= time {
            active -= 1;
        }
        active
    }
}

/// One step: when, and the states before and after it.
#[derive(Clone, Copy)]
pub(super) struct Step<T> {
    pub time: usize,
    pub before: *const T,
    pub after: *mut T,
    /// Products of this step's inputs, null where they are not computed beforehand.
    pub projected: *const T,
    /// Whether products with the state before are known to be zero.
    pub still: bool,
}

/// Sequences `rows.0..rows.0 + rows.1` and blocks `blocks.0..blocks.0 + blocks.1` of a step.
pub(super) struct Part<'a, T> {
    pub layer: &'a Layer<T>,
    pub step: Step<T>,
    pub rows: (usize, usize),
    pub blocks: (usize, usize),
    /// The thread's own.
    pub sums: *mut T,
}

/// Some sequences and one block of hidden units.
#[derive(Clone, Copy)]
pub(super) struct Spot<T> {
    pub first: usize,
    pub rows: usize,
    pub block: usize,
    /// For each sum of a unit, as many rows as the plan has, of a panel's width.
    pub sums: *mut T,
}

impl<T: Real> LanesTask<T> for Part<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let (layer, step) = (self.layer, &self.step);
        let cuts = Split::at_most(self.rows.1, layer.plan.rows);
        for block in self.blocks.0..self.blocks.0 + self.blocks.1 {
            for cut in 0..cuts.blocks {
                let (from, rows) = cuts.piece(cut);
                let first = self.rows.0 + from;
                let active = layer.active(step.time, first, rows);
                let spot = Spot { first, rows, block, sums: self.sums };
                // SAFETY: whoever made the part gave buffers of the plan's sizes and sequences and blocks that exist.
                unsafe {
                    if layer.plan.way.packs() {
                        cpu_products::by_panels(s, layer, step, Spot { rows: active, ..spot });
                    } else {
                        cpu_products::by_rows(s, layer, step, Spot { rows: active, ..spot });
                    }
                    cpu_gates::apply(s, layer, step, spot);
                }
            }
        }
    }
}

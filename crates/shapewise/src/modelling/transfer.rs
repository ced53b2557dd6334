//! What the nearest measured shapes tell about a new one: how far their candidates were from the prediction.

use std::collections::HashMap;

use arrayvec::ArrayVec;
use rustc_hash::FxBuildHasher;

use super::Features;
use super::features::at;
use super::repeated::Own;
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};

/// Shapes that are asked.
const NEAREST: usize = 6;
/// Sizes, strides and the element type make the distance.
const COORDINATES: usize = at::SIZE_COUNT + 7;

/// How far neighbours reach and how much they count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// Distance, in doublings of a size, at which a neighbour's weight has fallen to 1/e.
    pub scale: f32,
    /// Weight of the model's own prediction among the neighbours.
    pub own: f32,
}

/// Residuals by shape and candidate.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours {
    /// Each coordinate of all shapes side by side, so that distances to all of them are computed in vectors.
    places: [Vec<f32>; COORDINATES],
    attributes: Vec<f32>,
    hashes: HashMap<u64, u32, FxBuildHasher>,
    /// Candidates, by kernel and parameters, numbered in the order in which they were first met.
    variants: HashMap<u32, u32, FxBuildHasher>,
    /// Of each shape: the candidates that ran there, by number, with what they left.
    residuals: Vec<Vec<(u32, Residual)>>,
}

/// Mean log residuals of one candidate on one shape.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residual {
    /// Against a model that never saw the shape.
    pub unseen: f32,
    /// Weight of the measurements.
    pub weight: f32,
    /// What they tell by themselves.
    pub own: Own,
}

/// The nearest shapes of a query.
pub(super) struct Near {
    places: ArrayVec<(u32, f32), NEAREST>,
    exact: Option<u32>,
}

/// Nearest shapes with what each counts.
pub(super) type Weighed = ArrayVec<(u32, f32), NEAREST>;

/// What weighed shapes tell about each candidate that ran on one of them.
pub(super) struct Told<'a> {
    variants: &'a HashMap<u32, u32, FxBuildHasher>,
    /// Sums of weighed residuals and of the weights, by the candidate's number.
    sums: Vec<(f32, f32)>,
}

impl Told<'_> {
    /// The candidate's residual, and the weight of all shapes that have one.
    pub fn transfer(&self, variant: u32, own: f32) -> (f32, f32) {
        let (sum, weights) = self.variants.get(&variant).map_or((0.0, 0.0), |&n| self.sums[n as usize]);
        (sum / (weights + own), weights)
    }
}

impl Near {
    /// What each neighbour counts, by its distance: once for all candidates of a workload.
    pub fn weighed(&self, scale: f32) -> Weighed {
        let factor = -1.0 / (scale * scale);
        self.places.iter().map(|&(place, distance)| (place, (distance * factor).exp())).collect()
    }
}

impl Neighbours {
    /// Adds a measurement's residuals.
    pub fn add(&mut self, shape: u64, features: &Features, residual: Residual) {
        let next = self.attributes.len() as u32;
        let place = *self.hashes.entry(shape).or_insert(next);
        if place == next {
            for (places, here) in self.places.iter_mut().zip(coordinates(features)) {
                places.push(here);
            }
            self.attributes.push(features.0[at::ATTRIBUTE]);
            self.residuals.push(Vec::new());
        }
        let next = self.variants.len() as u32;
        let variant = *self.variants.entry(features.variant()).or_insert(next);
        let here = &mut self.residuals[place as usize];
        let at = here.binary_search_by_key(&variant, |r| r.0).unwrap_or_else(|at| {
            here.insert(at, (variant, Residual::default()));
            at
        });
        let mean = &mut here[at].1;
        let weight = mean.weight + residual.weight;
        let share = residual.weight / weight;
        mean.unseen += (residual.unseen - mean.unseen) * share;
        mean.own = residual.own;
        mean.weight = weight;
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The nearest shapes, with their squared distances; the shape itself apart.
    pub fn near(&self, shape: u64, features: &Features) -> Near {
        let exact = self.hashes.get(&shape).copied();
        let (here, attribute) = (coordinates(features), features.0[at::ATTRIBUTE]);
        let distances = Isa::best().run_narrow(Distances { all: self, here, attribute });
        let mut places = ArrayVec::<(u32, f32), NEAREST>::new();
        for (i, distance) in distances.into_iter().enumerate() {
            if Some(i as u32) == exact || places.is_full() && places[NEAREST - 1].1 <= distance {
                continue;
            }
            if places.is_full() {
                places.pop();
            }
            let at = places.partition_point(|p| p.1 <= distance);
            places.insert(at, (i as u32, distance));
        }
        Near { places, exact }
    }

    /// The candidate's own measurements on this very shape.
    pub fn exact(&self, near: &Near, variant: u32) -> Option<Own> {
        let here = &self.residuals[near.exact? as usize];
        let variant = self.variants.get(&variant)?;
        here.binary_search_by_key(variant, |r| r.0).ok().map(|at| here[at].1.own)
    }

    /// What weighed shapes tell, for all candidates at once.
    pub fn told(&self, weighed: &Weighed) -> Told<'_> {
        let mut sums = vec![(0.0, 0.0); self.variants.len()];
        for &(place, weight) in weighed {
            for (variant, residual) in &self.residuals[place as usize] {
                let sum: &mut (f32, f32) = &mut sums[*variant as usize];
                sum.0 += weight * residual.unseen;
                sum.1 += weight;
            }
        }
        Told { variants: &self.variants, sums }
    }
}

/// The squared distances of all shapes from one.
struct Distances<'a> {
    all: &'a Neighbours,
    here: [f32; COORDINATES],
    attribute: f32,
}

impl SimdTask for Distances<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // must melt into a function compiled for the instruction set
    #[allow(clippy::needless_range_loop)] // one index for several arrays
    fn run<S: Simd>(self, _: S) -> Vec<f32> {
        let attributes = &self.all.attributes[..];
        let mut out = vec![0.0f32; attributes.len()];
        for i in 0..attributes.len() {
            // Another function on the same sizes is as far as sizes four times as large.
            out[i] = if attributes[i] == self.attribute { 0.0 } else { 4.0 };
        }
        for c in 0..COORDINATES {
            let (places, here) = (&self.all.places[c][..attributes.len()], self.here[c]);
            for i in 0..places.len() {
                out[i] += (places[i] - here) * (places[i] - here);
            }
        }
        out
    }
}

fn coordinates(features: &Features) -> [f32; COORDINATES] {
    let mut out = [0.0; COORDINATES];
    let (sizes, rest) = out.split_at_mut(at::SIZE_COUNT);
    sizes.copy_from_slice(&features.0[at::SIZES..at::SIZES + at::SIZE_COUNT]);
    rest[..6].copy_from_slice(&features.0[at::LAYOUT..at::LAYOUT + 6]);
    rest[6] = features.0[21] * 2.0;
    out
}

//! What the nearest measured shapes tell about a new one: how far their candidates were from the prediction.

use std::collections::HashMap;

use arrayvec::ArrayVec;
use rustc_hash::FxBuildHasher;

use super::Features;
use super::features::at;

/// Shapes that are asked.
const NEAREST: usize = 6;
/// Sizes, strides and the element type make the distance.
const COORDINATES: usize = at::SIZE_COUNT + 7;
const _: () = assert!(COORDINATES.is_multiple_of(4), "distances are added up in fours");

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
    places: Vec<[f32; COORDINATES]>,
    attributes: Vec<f32>,
    hashes: HashMap<u64, u32, FxBuildHasher>,
    residuals: HashMap<u64, Residual, FxBuildHasher>,
}

/// Mean log residuals of one candidate on one shape.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residual {
    /// Against a model that never saw the shape.
    pub unseen: f32,
    /// Against the final model.
    pub seen: f32,
    /// Weight of the measurements.
    pub weight: f32,
}

/// The nearest shapes of a query.
pub(super) struct Near {
    places: ArrayVec<(u32, f32), NEAREST>,
    exact: Option<u32>,
}

/// Nearest shapes with what each counts.
pub(super) type Weighed = ArrayVec<(u32, f32), NEAREST>;

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
        let next = self.places.len() as u32;
        let place = *self.hashes.entry(shape).or_insert(next);
        if place == next {
            self.places.push(coordinates(features));
            self.attributes.push(features.0[at::ATTRIBUTE]);
        }
        let mean = self.residuals.entry(key(place, features.variant())).or_default();
        let weight = mean.weight + residual.weight;
        let share = residual.weight / weight;
        mean.unseen += (residual.unseen - mean.unseen) * share;
        mean.seen += (residual.seen - mean.seen) * share;
        mean.weight = weight;
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The nearest shapes, with their squared distances; the shape itself apart.
    pub fn near(&self, shape: u64, features: &Features) -> Near {
        let exact = self.hashes.get(&shape).copied();
        let here = coordinates(features);
        let attribute = features.0[at::ATTRIBUTE];
        let mut places = ArrayVec::<(u32, f32), NEAREST>::new();
        for (i, (place, &other)) in self.places.iter().zip(&self.attributes).enumerate() {
            // Another function on the same sizes is as far as sizes four times as large.
            let distance = distance(&here, place) + if attribute == other { 0.0 } else { 4.0 };
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
    pub fn exact(&self, near: &Near, variant: u32) -> Option<Residual> {
        self.residuals.get(&key(near.exact?, variant)).copied()
    }

    /// The candidate's residual at weighed shapes, and the weight of all that have one.
    pub fn transfer(&self, weighed: &Weighed, variant: u32, own: f32) -> (f32, f32) {
        let (mut sum, mut weights) = (0.0, 0.0);
        for &(place, weight) in weighed {
            if let Some(residual) = self.residuals.get(&key(place, variant)) {
                sum += weight * residual.unseen;
                weights += weight;
            }
        }
        (sum / (weights + own), weights)
    }
}

/// The squared distance, in four sums that the CPU adds at once.
fn distance(a: &[f32; COORDINATES], b: &[f32; COORDINATES]) -> f32 {
    let mut sums = [0.0; 4];
    for (a, b) in a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += (a - b) * (a - b);
        }
    }
    sums.iter().sum()
}

fn key(place: u32, variant: u32) -> u64 {
    u64::from(place) << 32 | u64::from(variant)
}

fn coordinates(features: &Features) -> [f32; COORDINATES] {
    let mut out = [0.0; COORDINATES];
    let (sizes, rest) = out.split_at_mut(at::SIZE_COUNT);
    sizes.copy_from_slice(&features.0[at::SIZES..at::SIZES + at::SIZE_COUNT]);
    rest[..6].copy_from_slice(&features.0[at::LAYOUT..at::LAYOUT + 6]);
    rest[6] = features.0[21] * 2.0;
    out
}

//! A kernel's tunables: typed names, small values, a space with constraints.

use std::fmt;

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};

use super::Workload;
use crate::backends::cpu::schedule::Schedule;
use crate::device::DeviceInfo;

/// The name of a tunable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Knob {
    /// Threads that take part.
    Threads,
    /// Rows of a cache block.
    BlockM,
    /// Columns of a cache block.
    BlockN,
    /// Depth of a cache block.
    BlockK,
    /// Whether what is touched once, outputs in most kernels, bypasses caches.
    Stream,
    /// The number of a plan in the operation's own list.
    Plan,
    /// How iterations are given to threads: the number of a schedule.
    Schedule,
    /// Invocations of a workgroup along its first axis.
    WorkgroupX,
    /// Invocations of a workgroup along its second axis.
    WorkgroupY,
    /// Rows of results that one invocation computes.
    TileM,
    /// Columns of results that one invocation computes.
    TileN,
    /// Elements that one load or store moves.
    Vector,
    /// Copies of a loop's body.
    Unroll,
    /// Pieces that a sum is cut into.
    Split,
    /// The largest radix of a transform's passes.
    Radix,
    /// What is asked for before its turn: 0 nothing, 1 results before they are written, 2 arguments as well.
    Ahead,
}

impl Knob {
    /// Whether its values are names, of which none is nearer to another.
    pub(crate) fn is_name(self) -> bool {
        matches!(self, Self::Stream | Self::Plan | Self::Schedule | Self::Ahead)
    }
}

/// Values for a kernel's tunables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parameters(ArrayVec<(Knob, u32), 8>);

impl Parameters {
    /// One thread and nothing else to say.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a tunable, if it was given.
    #[inline]
    pub fn get(&self, knob: Knob) -> Option<u32> {
        self.0.iter().find(|(k, _)| *k == knob).map(|&(_, value)| value)
    }

    /// The same with one tunable set.
    #[must_use]
    pub fn with(mut self, knob: Knob, value: u32) -> Self {
        match self.0.iter_mut().find(|(k, _)| *k == knob) {
            Some((_, old)) => *old = value,
            None => self.0.push((knob, value)),
        }
        self
    }

    /// Threads that take part, the caller included.
    #[inline]
    pub fn threads(&self) -> usize {
        self.get(Knob::Threads).map_or(1, |n| n.max(1) as usize)
    }

    /// Every tunable that was given.
    pub fn iter(&self) -> impl Iterator<Item = (Knob, u32)> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> =
            self.iter().map(|(knob, value)| format!("{knob:?}={value}").to_lowercase()).collect();
        f.pad(&parts.join(" "))
    }
}

/// The points a kernel may be run at: every combination of its axes that the constraints let through.
#[derive(Clone, Debug, Default)]
pub struct ParameterSpace {
    points: Vec<Parameters>,
}

impl ParameterSpace {
    /// Points that memory is taken for at once.
    const USUAL: usize = 4;

    /// The single point without tunables.
    pub fn single() -> Self {
        let mut points = Vec::with_capacity(Self::USUAL);
        points.push(Parameters::new());
        Self { points }
    }

    /// One thread, and every power of two up to all `threads`.
    pub fn threads(threads: usize) -> Self {
        // Every power of two of 32 bits, and the threads themselves.
        let mut values: ArrayVec<u32, 33> = std::iter::successors(Some(1u32), |n| n.checked_mul(2))
            .take_while(|&n| (n as usize) < threads)
            .collect();
        values.push(threads.max(1) as u32);
        Self::single().axis(Knob::Threads, &values)
    }

    /// Crosses the points so far with each value of another tunable.
    #[must_use]
    pub fn axis(mut self, knob: Knob, values: &[u32]) -> Self {
        let (before, each) = (self.points.len(), values.len());
        self.points.resize(before * each, Parameters::new());
        // From the last point on, so that each is still there when its turn comes.
        for from in (0..before.min(self.points.len())).rev() {
            let point = std::mem::take(&mut self.points[from]);
            for (to, &value) in self.points[from * each..][..each].iter_mut().zip(values) {
                *to = point.clone().with(knob, value);
            }
        }
        self
    }

    /// Every point with the values of another point added.
    #[must_use]
    pub fn with(mut self, values: &Parameters) -> Self {
        for point in &mut self.points {
            for (knob, value) in values.iter() {
                *point = std::mem::take(point).with(knob, value);
            }
        }
        self
    }

    /// The points so far, then those of another space that are not among them.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        let own = self.points.len();
        for point in more.points {
            if !self.points[..own].contains(&point) {
                self.points.push(point);
            }
        }
        self
    }

    /// The points so far with results kept in the caches, and past them where all operands are larger than the second one: what
    /// fits there is better left there (of 1200 norms and softmaxes on one Zen 5 none was faster past the caches by more than chance).
    #[must_use]
    pub fn streamed(self, workload: &Workload, device: &DeviceInfo) -> Self {
        let far = device.caches.l2.is_none_or(|l2| workload.bytes() > l2);
        self.axis(Knob::Stream, if far { &[0, 1] } else { &[0] })
    }

    /// The points so far, then those with several threads once more with each schedule.
    #[must_use]
    pub fn scheduled(self) -> Self {
        let several = self.clone().constrained(|p| p.threads() > 1);
        self.and(several.axis(Knob::Schedule, &Schedule::ALL.map(|schedule| schedule as u32)))
    }

    /// Keeps only the points that satisfy a constraint.
    #[must_use]
    pub fn constrained(mut self, holds: impl Fn(&Parameters) -> bool) -> Self {
        self.points.retain(holds);
        self
    }

    /// Every point; the first is the kernel's own favourite.
    pub fn points(&self) -> &[Parameters] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_cross_and_filter() {
        let space = ParameterSpace::threads(6).axis(Knob::Stream, &[0, 1]);
        assert_eq!(space.points().len(), 8);
        let few = space.constrained(|p| p.threads() != 1 || p.get(Knob::Stream) == Some(0));
        assert_eq!(few.points().len(), 7);
        assert_eq!(ParameterSpace::threads(1).points().len(), 1);
        let more = ParameterSpace::threads(1).and(ParameterSpace::threads(2));
        assert_eq!(more.points().iter().map(Parameters::threads).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(few.points()[0].to_string(), "threads=1 stream=0");
    }
}

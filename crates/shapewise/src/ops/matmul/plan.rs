//! How a product is cut into blocks for the caches of a device.

use super::cpu_micro::tile_shape;
use super::cpu_problem::Gemm;
use super::{cpu_packed, cpu_panel};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;

/// How a kernel goes about a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Algorithm {
    /// Both operands where they lie.
    Small,
    /// The right operand packed panel by panel.
    Panel,
    /// Both operands packed in blocks.
    Packed,
    /// The same for each thread's share of the steps.
    SplitK,
}

/// Cache sizes that blocks are cut for. Where the machine does not tell, the smallest that CPUs with vectors have:
/// blocks that are too small cost a little, those that do not fit cost a lot.
pub(in crate::ops) struct Sizes {
    pub l1: usize,
    pub l2: usize,
    pub l3: usize,
}

impl Sizes {
    pub fn of(device: &DeviceInfo) -> Self {
        let caches = &device.caches;
        let l1 = caches.l1d.unwrap_or(16 << 10);
        let l2 = caches.l2.unwrap_or(128 << 10);
        Self { l1, l2, l3: caches.l3.unwrap_or(l2) }
    }

    /// Steps of a right panel that take half of the first-level cache.
    fn depth(&self, panel_bytes: usize) -> usize {
        (self.l1 / 2 / panel_bytes).max(16)
    }
}

/// How the kernel will cut a product, derived from the caches.
pub(in crate::ops) struct Plan {
    pub mc: usize,
    pub kc: usize,
    pub nc: usize,
    /// Panels of the right operand packed at once.
    pub chunk: usize,
    pub threads: usize,
    pub stream: bool,
}

impl Plan {
    #[allow(clippy::too_many_arguments)]
    pub fn new<T>(
        g: &Gemm<T>,
        algorithm: Algorithm,
        isa: Isa,
        size: usize,
        threads: usize,
        stream: bool,
        sizes: &Sizes,
    ) -> Self {
        let (rows, vectors) = tile_shape(isa.register_bytes());
        let panel_bytes = vectors * isa.register_bytes();
        let kc = sizes.depth(panel_bytes);
        let (k, threads) =
            if algorithm == Algorithm::SplitK { (g.k.div_ceil(threads), 1) } else { (g.k, threads) };
        let depth = k.div_ceil(k.div_ceil(kc));
        let mc = match algorithm {
            Algorithm::Small => g.m,
            Algorithm::Panel => (sizes.l2 / 2 / (g.k * size)).max(2 * rows),
            Algorithm::Packed | Algorithm::SplitK => {
                let most = (sizes.l2 / 4 / (depth * size)).max(rows);
                let blocks = g.m.div_ceil(most).next_multiple_of(threads);
                g.m.div_ceil(blocks).max(rows)
            }
        };
        let nc = (sizes.l3 / 4 / (depth * size)).max(panel_bytes / size);
        // An eighth of the second-level cache, twice: the left operand and the result need the rest.
        let chunk = (sizes.l2 / 8 / (depth * panel_bytes)).clamp(1, 64);
        Self { mc, kc, nc, chunk, threads, stream: stream && k <= kc && algorithm != Algorithm::SplitK }
    }

    pub(super) fn panel(&self) -> cpu_panel::Blocking {
        cpu_panel::Blocking {
            mc: self.mc,
            kc: self.kc,
            chunk: self.chunk,
            threads: self.threads,
            stream: self.stream,
        }
    }

    pub fn packed(&self) -> cpu_packed::Blocking {
        cpu_packed::Blocking {
            mc: self.mc,
            kc: self.kc,
            nc: self.nc,
            threads: self.threads,
            stream: self.stream,
        }
    }
}

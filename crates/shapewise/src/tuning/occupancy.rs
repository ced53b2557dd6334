//! How many blocks of a CUDA kernel run at once on a multiprocessor: exact, for compute capability 5.0 to 12.1.
//!
//! Sizes are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the way of
//! counting is checked against NVIDIA's published calculator (`tests/golden/occupancy.cpp`).

use serde::Serialize;

/// Threads of a warp on every architecture.
pub const WARP: u32 = 32;
/// The most threads of a block on every architecture.
pub const MOST_THREADS: u32 = 1024;
/// Registers of a multiprocessor on every architecture since 5.0.
const REGISTERS: u32 = 64 << 10;
/// Registers are given to a warp in pieces of this many.
const REGISTER_UNIT: u32 = 256;

/// What a multiprocessor of one compute capability has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Multiprocessor {
    /// Major and minor compute capability.
    pub capability: (u8, u8),
    /// Threads that can be resident.
    pub threads: u32,
    /// Blocks that can be resident.
    pub blocks: u32,
    /// Registers that one block may have.
    pub registers_per_block: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that one block may have, asked for where it is above 48 KiB.
    pub shared_per_block: u32,
    /// Bytes of each block that the system keeps for itself.
    pub shared_reserved: u32,
}

/// Threads, blocks, registers of a block in Ki, shared KiB, shared KiB of a block.
type Row = ((u8, u8), u32, u32, u32, u32, u32);
const TABLE: [Row; 19] = [
    ((5, 0), 2048, 32, 64, 64, 48),
    ((5, 2), 2048, 32, 64, 96, 48),
    ((5, 3), 2048, 32, 32, 64, 48),
    ((6, 0), 2048, 32, 64, 64, 48),
    ((6, 1), 2048, 32, 64, 96, 48),
    ((6, 2), 2048, 32, 32, 64, 48),
    ((7, 0), 2048, 32, 64, 96, 96),
    ((7, 2), 2048, 32, 64, 96, 96),
    ((7, 5), 1024, 16, 64, 64, 64),
    ((8, 0), 2048, 32, 64, 164, 163),
    ((8, 6), 1536, 16, 64, 100, 99),
    ((8, 7), 1536, 16, 64, 164, 163),
    ((8, 9), 1536, 24, 64, 100, 99),
    ((9, 0), 2048, 32, 64, 228, 227),
    ((10, 0), 2048, 32, 64, 228, 227),
    ((10, 1), 1536, 24, 64, 228, 227),
    ((10, 3), 2048, 32, 64, 228, 227),
    ((12, 0), 1536, 24, 64, 100, 99),
    ((12, 1), 1536, 24, 64, 100, 99),
];

/// What keeps more blocks from running at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Warps that can be resident.
    Warps,
    /// Blocks that can be resident.
    Blocks,
    /// Registers.
    Registers,
    /// Shared memory.
    Shared,
}

/// What runs at once on one multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Occupancy {
    /// Resident blocks; zero if the kernel cannot be launched like this.
    pub blocks: u32,
    /// Resident warps.
    pub warps: u32,
    /// Resident warps as a share of the most there can be.
    pub share: f64,
    /// What keeps more from running.
    pub limiter: Limiter,
}

impl Multiprocessor {
    /// The multiprocessor of a compute capability; `None` for one that is not in the table.
    pub fn of(capability: (u8, u8)) -> Option<Self> {
        TABLE.iter().find(|row| row.0 == capability).map(Self::from_row)
    }

    /// Every architecture in the table, oldest first.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(Self::from_row)
    }

    fn from_row(&(capability, threads, blocks, registers, shared, per_block): &Row) -> Self {
        Self {
            capability,
            threads,
            blocks,
            registers_per_block: registers << 10,
            shared: shared << 10,
            shared_per_block: per_block << 10,
            // Since 8.0 the driver keeps one KiB of every block.
            shared_reserved: if capability.0 >= 8 { 1 << 10 } else { 0 },
        }
    }

    /// Registers that one thread may have.
    pub fn registers_per_thread(&self) -> u32 {
        if self.capability.0 >= 7 { 256 } else { 255 }
    }

    /// Schedulers, each with its own share of the registers.
    fn partitions(&self) -> u32 {
        if self.capability == (6, 0) { 2 } else { 4 }
    }

    /// Blocks that run at once, of `threads` threads with `registers` each and `shared` bytes together.
    pub fn occupancy(&self, threads: u32, registers: u32, shared: u32) -> Occupancy {
        let warps = threads.min(MOST_THREADS).div_ceil(WARP).max(1);
        let most_warps = self.threads / WARP;
        let impossible = threads == 0 || threads > MOST_THREADS;
        let limits = [
            (if impossible { 0 } else { most_warps / warps }, Limiter::Warps),
            (self.blocks, Limiter::Blocks),
            (self.by_registers(warps, registers), Limiter::Registers),
            (self.by_shared(shared), Limiter::Shared),
        ];
        let (blocks, limiter) =
            limits.into_iter().fold(limits[0], |least, limit| if limit.0 < least.0 { limit } else { least });
        let warps = blocks * warps;
        Occupancy { blocks, warps, share: f64::from(warps) / f64::from(most_warps), limiter }
    }

    fn by_registers(&self, warps: u32, registers: u32) -> u32 {
        if registers > self.registers_per_thread() {
            return 0;
        }
        let per_warp = (registers * WARP).next_multiple_of(REGISTER_UNIT);
        if per_warp == 0 {
            return u32::MAX;
        }
        // A launch is checked as if every scheduler got the same number of warps; on 6.0 as if there were four.
        if per_warp * warps.next_multiple_of(4) > self.registers_per_block {
            return 0;
        }
        let partitions = self.partitions();
        REGISTERS / partitions / per_warp * partitions / warps
    }

    fn by_shared(&self, shared: u32) -> u32 {
        let unit = if self.capability.0 >= 8 { 128 } else { 256 };
        let Some(taken) = shared.checked_add(self.shared_reserved + unit) else { return 0 };
        let taken = (taken - unit).next_multiple_of(unit);
        if taken > self.shared_per_block + self.shared_reserved {
            return 0;
        }
        self.shared.checked_div(taken).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `occupancy.cpp` with the calculator that NVIDIA publishes, `cuda_occupancy.h` of CUDA 12.9.
    const PUBLISHED: &str = include_str!("../../tests/golden/occupancy.tsv");

    #[test]
    fn equals_the_published_calculator() {
        let mut cases = 0;
        let mut architectures = std::collections::BTreeSet::new();
        for line in PUBLISHED.lines().filter(|line| !line.starts_with('#')) {
            let (name, numbers) = line.split_once('\t').unwrap();
            let (major, minor) = name.split_once('.').unwrap();
            let capability = (major.parse().unwrap(), minor.parse().unwrap());
            let numbers: Vec<u32> = numbers.split('\t').map(|n| n.parse().unwrap()).collect();
            let [threads, registers, shared, blocks] = numbers[..] else { panic!("{line}") };
            let sm = Multiprocessor::of(capability).unwrap();
            assert_eq!(sm.occupancy(threads, registers, shared).blocks, blocks, "{line}");
            architectures.insert(capability);
            cases += 1;
        }
        assert!(cases >= 200, "{cases} cases");
        assert_eq!(architectures.len(), TABLE.len());
    }

    #[test]
    fn says_what_limits() {
        let sm = Multiprocessor::of((8, 0)).unwrap();
        let limiter = |threads, registers, shared| sm.occupancy(threads, registers, shared).limiter;
        assert_eq!(limiter(1024, 16, 0), Limiter::Warps);
        assert_eq!(limiter(32, 16, 0), Limiter::Blocks);
        assert_eq!(limiter(256, 128, 0), Limiter::Registers);
        assert_eq!(limiter(256, 32, 100 << 10), Limiter::Shared);
        let full = sm.occupancy(256, 32, 0);
        assert_eq!((full.blocks, full.warps), (8, 64));
        assert!((full.share - 1.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_overflows() {
        for sm in Multiprocessor::all() {
            for threads in [0, 1, 1024, 1025, u32::MAX] {
                for registers in [0, 1, 255, 256, 257, u32::MAX] {
                    for shared in [0, 1, 48 << 10, u32::MAX] {
                        let found = sm.occupancy(threads, registers, shared);
                        assert!(found.share <= 1.0 && found.blocks <= sm.blocks, "{found:?}");
                    }
                }
            }
        }
        assert_eq!(Multiprocessor::of((4, 0)), None);
    }
}

//! The kernels: ways to multiply on each instruction set.
#![allow(unsafe_code)]

use super::cpu_problem::{Problem, attributes, by_entries, even, parts};
use super::cpu_reference::TYPES;
use super::cpu_vector::{Corner, Part, Stretch};
use super::{Number, SparseFormat, by_type, cost, cpu_blocks, cpu_ell, cpu_scatter, cpu_turned, cpu_wide};
use crate::backends::cpu::schedule::{self, Schedule};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};

/// How the work is walked and dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A vector; as many rows for each part.
    Rows,
    /// A vector; about as many entries for each part.
    Nonzeros,
    /// A vector; rows and entries merged, so that even a single row is shared.
    Merge,
    /// Rows of the dense operand along memory.
    Wide,
    /// Vectors along memory, put side by side first.
    Turned,
    /// ELL times a vector.
    Ell,
    /// BSR.
    Blocks,
    /// CSC.
    Scatter,
}

/// One way on one instruction set.
pub(super) struct Product {
    name: &'static str,
    way: Way,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($constant:ident = $way:ident, $isa:ident, $name:literal, [$($constraint:expr),*];)*) => {$(
        pub(super) static $constant: Product = Product {
            name: concat!("cpu::sparse::", $name),
            way: Way::$way,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), TYPES, $($constraint),*],
        };
    )*};
}
kernels! {
    AVX2_ROWS = Rows, Avx2, "avx2_rows", [BY_ROWS, UPRIGHT];
    NEON_ROWS = Rows, Neon, "neon_rows", [BY_ROWS, UPRIGHT];
    PORTABLE_ROWS = Rows, Portable, "portable_rows", [BY_ROWS, UPRIGHT];
    AVX2_NONZEROS = Nonzeros, Avx2, "avx2_nonzeros", [BY_ROWS, UPRIGHT];
    NEON_NONZEROS = Nonzeros, Neon, "neon_nonzeros", [BY_ROWS, UPRIGHT];
    PORTABLE_NONZEROS = Nonzeros, Portable, "portable_nonzeros", [BY_ROWS, UPRIGHT];
    AVX2_MERGE = Merge, Avx2, "avx2_merge", [BY_ROWS, UPRIGHT];
    NEON_MERGE = Merge, Neon, "neon_merge", [BY_ROWS, UPRIGHT];
    PORTABLE_MERGE = Merge, Portable, "portable_merge", [BY_ROWS, UPRIGHT];
    AVX512_WIDE = Wide, Avx512, "avx512_wide", [ROWS_OR_ELL, SEVERAL, FLAT];
    AVX2_WIDE = Wide, Avx2, "avx2_wide", [ROWS_OR_ELL, SEVERAL, FLAT];
    NEON_WIDE = Wide, Neon, "neon_wide", [ROWS_OR_ELL, SEVERAL, FLAT];
    PORTABLE_WIDE = Wide, Portable, "portable_wide", [ROWS_OR_ELL, SEVERAL, FLAT];
    AVX512_TURNED = Turned, Avx512, "avx512_turned", [ROWS_OR_ELL, SEVERAL, UPRIGHT];
    AVX2_TURNED = Turned, Avx2, "avx2_turned", [ROWS_OR_ELL, SEVERAL, UPRIGHT];
    NEON_TURNED = Turned, Neon, "neon_turned", [ROWS_OR_ELL, SEVERAL, UPRIGHT];
    PORTABLE_TURNED = Turned, Portable, "portable_turned", [ROWS_OR_ELL, SEVERAL, UPRIGHT];
    AVX2_ELL = Ell, Avx2, "avx2_ell", [ELL, UPRIGHT];
    NEON_ELL = Ell, Neon, "neon_ell", [ELL, UPRIGHT];
    PORTABLE_ELL = Ell, Portable, "portable_ell", [ELL, UPRIGHT];
    AVX512_BLOCKS = Blocks, Avx512, "avx512_blocks", [BSR, FLAT];
    AVX2_BLOCKS = Blocks, Avx2, "avx2_blocks", [BSR, FLAT];
    NEON_BLOCKS = Blocks, Neon, "neon_blocks", [BSR, FLAT];
    PORTABLE_BLOCKS = Blocks, Portable, "portable_blocks", [BSR, FLAT];
    AVX512_SCATTER = Scatter, Avx512, "avx512_scatter", [CSC, FLAT];
    AVX2_SCATTER = Scatter, Avx2, "avx2_scatter", [CSC, FLAT];
    NEON_SCATTER = Scatter, Neon, "neon_scatter", [CSC, FLAT];
    PORTABLE_SCATTER = Scatter, Portable, "portable_scatter", [CSC, FLAT];
}

const BY_ROWS: Constraint = Constraint::Shape("the format csr or coo", |w| {
    matches!(attributes(w).format, SparseFormat::Csr | SparseFormat::Coo)
});
const ROWS_OR_ELL: Constraint = Constraint::Shape("the format csr, coo or ell", |w| {
    matches!(attributes(w).format, SparseFormat::Csr | SparseFormat::Coo | SparseFormat::Ell)
});
const ELL: Constraint = Constraint::Shape("the format ell", |w| attributes(w).format == SparseFormat::Ell);
const CSC: Constraint = Constraint::Shape("the format csc", |w| attributes(w).format == SparseFormat::Csc);
const BSR: Constraint =
    Constraint::Shape("the format bsr", |w| matches!(attributes(w).format, SparseFormat::Bsr { .. }));
const SEVERAL: Constraint = Constraint::Shape("several columns", |w| w.outputs()[0].shape[1] > 1);
const UPRIGHT: Constraint = Constraint::Shape("vectors along memory", |w| {
    w.inputs()[1].strides[0] == 1 && w.outputs()[0].strides[0] == 1
});
const FLAT: Constraint = Constraint::Shape("rows along memory", |w| {
    let (x, y) = (&w.inputs()[1], &w.outputs()[0]);
    let bias = w.inputs().get(4).is_none_or(|b| matches!(b.strides[1], 0 | 1));
    let single = y.shape[1] == 1 && x.strides[0] == 1;
    bias && (single || x.strides[1] == 1 && y.strides[1] == 1)
});

impl Kernel for Product {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sparse
    }

    fn source(&self) -> u64 {
        match self.way {
            Way::Rows | Way::Nonzeros | Way::Merge => {
                source_hash!("cpu_kernels.rs", "cpu_problem.rs", "cpu_vector.rs")
            }
            Way::Wide | Way::Turned => {
                source_hash!("cpu_kernels.rs", "cpu_problem.rs", "cpu_wide.rs", "cpu_turned.rs")
            }
            Way::Ell => source_hash!("cpu_kernels.rs", "cpu_problem.rs", "cpu_ell.rs"),
            Way::Blocks => source_hash!("cpu_kernels.rs", "cpu_problem.rs", "cpu_blocks.rs"),
            Way::Scatter => source_hash!("cpu_kernels.rs", "cpu_problem.rs", "cpu_scatter.rs"),
        }
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        // It depends on the machine whether entries that do not stay near should go past the second cache.
        let far = device.caches.l2.is_some_and(|l2| workload.bytes() > l2);
        let picks = matches!(self.way, Way::Rows | Way::Nonzeros | Way::Merge);
        if far && picks { space.axis(Knob::Stream, &[0, 1]) } else { space }
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let usual = self.space(workload, device);
        if self.schedules() { usual.scheduled() } else { usual }
    }

    fn schedules(&self) -> bool {
        !matches!(self.way, Way::Merge | Way::Turned | Way::Scatter)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let (x, y) = (&workload.inputs()[1], &workload.outputs()[0]);
        let (rows, n, dtype) = (y.shape[0], y.shape[1], x.dtype);
        let threads = parameters.threads();
        let lanes = self.isa.register_bytes() / dtype.size();
        let width = match self.way {
            Way::Wide | Way::Turned | Way::Scatter => n as f64,
            Way::Blocks if n > 1 => n as f64,
            _ => 0.0,
        };
        let products = cost::products(workload);
        // Lanes that are filled; elements picked one by one cost an instruction each.
        let padding =
            if width > 0.0 { (width / lanes as f64).ceil() * lanes as f64 / width } else { lanes as f64 };
        let unit = ComputeUnit { dtype, isa: Some(self.isa) };
        let mut traffic = cost::traffic(workload, device);
        if streams(parameters) {
            // What goes past the second cache may come from memory every time.
            traffic.memory = traffic.memory.max(traffic.l3);
        }
        let scratch = self.scratch_bytes(workload, threads);
        // Scratch is written and read once.
        traffic = traffic + Traffic::pass(2.0 * scratch as f64, scratch as f64, &device.caches);
        let cost = Cost::new(2.0 * products * padding, unit, traffic)
            .split(threads, parts(threads, rows).max(n.min(threads)));
        let skew = if self.way == Way::Rows { cost::imbalance_of_rows(workload, cost.threads) } else { 1.0 };
        Cost { scratch, imbalance: cost.imbalance * skew, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        by_type!(call.workload.inputs()[0].dtype, T => self.launch_as::<T>(call))
    }
}

impl Product {
    /// Bytes of the offsets of COO, of collected vectors, of the sums of columns.
    fn scratch_bytes(&self, workload: &Workload, threads: usize) -> usize {
        let (x, y) = (&workload.inputs()[1], &workload.outputs()[0]);
        let (rows, n, size) = (y.shape[0], y.shape[1], x.dtype.size());
        let offsets = if attributes(workload).format == SparseFormat::Coo { 4 * (rows + 1) } else { 0 };
        let own = match self.way {
            Way::Turned => (x.shape[0] + parts(threads, rows) * cpu_turned::BLOCK).saturating_mul(n * size),
            Way::Scatter if threads > 1 => threads.saturating_mul(rows).saturating_mul(n * size),
            Way::Merge => parts(threads, rows) * size,
            _ => 0,
        };
        offsets.saturating_add(own)
    }

    fn launch_as<T: Number>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let p = Problem::<T>::new(call)?;
        if p.rows == 0 || p.n == 0 {
            return Ok(());
        }
        if p.format == SparseFormat::Coo {
            let mut counted = call.cpu().scratch(4 * (p.rows + 1))?;
            let offsets: &mut [u32] = bytemuck::cast_slice_mut(&mut counted);
            let offsets = &mut offsets[..=p.rows];
            starts(p.offsets, offsets);
            let p = Problem { offsets, format: SparseFormat::Csr, ..p };
            return self.run(call, &p);
        }
        self.run(call, &p)
    }

    fn run<T: Number>(&self, call: &Call<'_>, p: &Problem<'_, T>) -> Result<(), KernelError> {
        let (pool, threads, isa) = (call.cpu().threads(), call.parameters.threads(), self.isa);
        let each = parts(threads, p.rows);
        let schedule = Schedule::from_number(call.parameters.get(Knob::Schedule));
        let once = streams(call.parameters);
        let run = |pieces, piece: &(dyn Fn(usize) + Sync)| {
            schedule::run(pool, threads, pieces, schedule, piece);
        };
        match self.way {
            Way::Rows | Way::Nonzeros => run(each * p.n, &|task| {
                let (column, part) = (task / each, task % each);
                let rows = if self.way == Way::Rows {
                    even(p.rows, part, each)
                } else {
                    by_entries(p.offsets, part, each)
                };
                T::dispatch_narrow(isa, Part { problem: p, column, rows, once });
            }),
            Way::Merge => return self.merge(call, p, each),
            Way::Wide => run(each, &|part| {
                let rows = if p.format == SparseFormat::Ell {
                    even(p.rows, part, each)
                } else {
                    by_entries(p.offsets, part, each)
                };
                T::dispatch(isa, cpu_wide::Rows { problem: p, rows });
            }),
            Way::Ell => run(each * p.n, &|task| {
                let (column, rows) = (task / each, even(p.rows, task % each, each));
                T::dispatch_narrow(isa, cpu_ell::Part { problem: p, column, rows });
            }),
            Way::Blocks => {
                let each = parts(threads, p.offsets.len() - 1);
                run(each, &|part| {
                    T::dispatch(
                        isa,
                        cpu_blocks::Part { problem: p, lines: by_entries(p.offsets, part, each) },
                    );
                });
            }
            Way::Turned => return self.turned(call, p, each),
            Way::Scatter => return self.scatter(call, p),
        }
        Ok(())
    }

    /// Parts of the merge path; what a part has of a row that ends in a later one is added at the end.
    fn merge<T: Number>(&self, call: &Call<'_>, p: &Problem<'_, T>, each: usize) -> Result<(), KernelError> {
        let mut carried = call.cpu().scratch(each * p.n * size_of::<T>())?;
        let carried = Memory::<T>(carried.as_mut_ptr().cast());
        let steps = p.rows + p.offsets[p.rows] as usize;
        let corner = |part: usize| Corner::at(p.offsets, steps * part / each);
        let once = streams(call.parameters);
        call.cpu().threads().run(call.parameters.threads(), each * p.n, &|task| {
            let (column, part) = (task / each, task % each);
            let stretch = Stretch { problem: p, column, from: corner(part), to: corner(part + 1), once };
            let rest = T::dispatch_narrow(self.isa, stretch);
            // SAFETY: each task has a slot of its own.
            unsafe { *carried.at(task) = rest };
        });
        for task in 0..each * p.n {
            let (column, part) = (task / each, task % each);
            let (from, to) = (corner(part), corner(part + 1));
            let open = if from.row == to.row { from.entry } else { p.offsets[to.row] as usize };
            if open < to.entry {
                // SAFETY: a row with entries exists, and all tasks are done.
                unsafe { *p.y_row(to.row, column) = *p.y_row(to.row, column) + *carried.at(task) };
            }
        }
        Ok(())
    }

    /// Vectors put side by side, then rows in blocks.
    fn turned<T: Number>(&self, call: &Call<'_>, p: &Problem<'_, T>, each: usize) -> Result<(), KernelError> {
        let (pool, threads) = (call.cpu().threads(), call.parameters.threads());
        let elements = (p.columns + each * cpu_turned::BLOCK) * p.n;
        let mut scratch = call.cpu().scratch(elements * size_of::<T>())?;
        let memory = Memory::<T>(scratch.as_mut_ptr().cast());
        pool.run(threads, each, &|part| {
            // SAFETY: each part collects rows of its own.
            unsafe { cpu_turned::collect(p, even(p.columns, part, each), memory.at(0)) };
        });
        pool.run(threads, each, &|part| {
            let rows = if p.format == SparseFormat::Ell {
                even(p.rows, part, each)
            } else {
                by_entries(p.offsets, part, each)
            };
            let block = memory.at((p.columns + part * cpu_turned::BLOCK) * p.n);
            // SAFETY: each part has a block and rows of its own.
            unsafe { cpu_turned::multiply(self.isa, p, rows, memory.at(0), block) };
        });
        Ok(())
    }

    /// Columns into sums of each part's own, which are then added up; a single part adds into the output.
    fn scatter<T: Number>(&self, call: &Call<'_>, p: &Problem<'_, T>) -> Result<(), KernelError> {
        let (pool, threads) = (call.cpu().threads(), call.parameters.threads());
        if threads == 1 {
            // SAFETY: nobody else writes the output.
            unsafe { cpu_scatter::start(p, 0..p.rows) };
            let columns = 0..p.columns;
            T::dispatch(
                self.isa,
                cpu_scatter::Columns { problem: p, range: columns, out: p.y, step: p.y_step[0] },
            );
            return Ok(());
        }
        let one = p.rows * p.n;
        let mut scratch = call.cpu().scratch(threads * one * size_of::<T>())?;
        let sums = Memory::<T>(scratch.as_mut_ptr().cast());
        pool.run(threads, threads, &|part| {
            let out = sums.at(part * one);
            // SAFETY: each part has sums of its own.
            unsafe { std::ptr::write_bytes(out, 0, one) };
            let columns = by_entries(p.offsets, part, threads);
            T::dispatch(
                self.isa,
                cpu_scatter::Columns { problem: p, range: columns, out, step: p.n as isize },
            );
        });
        let each = parts(threads, p.rows);
        pool.run(threads, each, &|part| {
            let rows = even(p.rows, part, each);
            T::dispatch(self.isa, cpu_scatter::Gather { problem: p, rows, sums: sums.at(0), parts: threads });
        });
        Ok(())
    }
}

/// Whether entries go past the second cache.
fn streams(parameters: &Parameters) -> bool {
    parameters.get(Knob::Stream) == Some(1)
}

/// Where each row starts among entries sorted by row.
fn starts(rows: &[u32], offsets: &mut [u32]) {
    let mut next = 0;
    for (at, &row) in rows.iter().enumerate() {
        while next <= row as usize {
            offsets[next] = at as u32;
            next += 1;
        }
    }
    offsets[next..].fill(rows.len() as u32);
}

/// Scratch that tasks share by parts of their own.
struct Memory<T>(*mut T);

impl<T> Memory<T> {
    fn at(&self, offset: usize) -> *mut T {
        self.0.wrapping_add(offset)
    }
}

// SAFETY: each task uses a part of its own.
unsafe impl<T: Send> Sync for Memory<T> {}

#[cfg(test)]
mod tests {
    use super::starts;

    #[test]
    fn rows_without_entries_start_where_the_next_does() {
        for (rows, n, wanted) in
            [(&[1u32, 1, 3][..], 5, &[0u32, 0, 2, 2, 3, 3][..]), (&[], 2, &[0, 0, 0]), (&[0], 1, &[0, 1])]
        {
            let mut offsets = vec![9; n + 1];
            starts(rows, &mut offsets);
            assert_eq!(offsets, wanted);
        }
    }
}

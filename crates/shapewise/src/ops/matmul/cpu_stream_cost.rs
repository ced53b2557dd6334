//! What the streaming kernels execute, counted from their walks.

use super::cost::IN_FLIGHT;
use super::cpu_bandwidth::share;
use super::cpu_batch::Products;
use super::cpu_problem::{Gemm, Split};
use super::cpu_stream::{self as stream, Plan, Walk};
use super::{cpu_stream_dot as dot, cpu_stream_outer as outer};
use crate::backends::cpu::simd::Isa;
use crate::device::{Caches, DeviceInfo};
use crate::ops::{ComputeUnit, Cost, Parameters, Traffic, Workload};
use crate::tensor::DType;

/// Bytes of a line, the least that memory gives.
const LINE: f64 = 64.0;

/// The cost of all products of a workload.
pub(super) fn streamed(workload: &Workload, parameters: &Parameters, device: &DeviceInfo, isa: Isa) -> Cost {
    let products = Products::describe(workload);
    let stored = workload.outputs()[0].dtype;
    let wide = if stored == DType::F64 { DType::F64 } else { DType::F32 };
    let (inside, beside) = share(parameters.threads(), products.count);
    let g = stream::few_rows_left(*products.first());
    let plan = stream::plan_sized(&g, isa, inside, stored.size(), wide.size());
    let (vectors, traffic) = count(&g, &plan, stored.size() as f64, wide.size() as f64, &device.caches);
    let many = products.count as f64;
    let traffic = Traffic {
        l1: traffic.l1 * many,
        l2: traffic.l2 * many,
        l3: traffic.l3 * many,
        memory: memory(workload, &g, stored.size(), &device.caches),
    };
    let operations = many * vectors * 2.0 * plan.lanes as f64;
    let unit = ComputeUnit { dtype: wide, isa: Some(isa) };
    let scratch = plan.scratch().saturating_mul(wide.size());
    let cost = Cost { scratch, ..Cost::new(operations, unit, traffic).converting(workload) };
    if beside > 1 {
        let shares = Split::into(products.count, beside);
        let imbalance = shares.longest() as f64 * beside as f64 / many;
        return Cost {
            threads: beside,
            imbalance,
            forks: 1,
            scratch: scratch.saturating_mul(beside),
            ..cost
        };
    }
    let cost = cost.split(plan.threads, plan.parts.blocks);
    Cost { forks: cost.forks * products.count as u32, ..cost }
}

/// Whether neither direction of the matrix is contiguous, so that its elements are gathered one at a time.
fn gathered<T>(g: &Gemm<T>) -> bool {
    stream::walk(g) == Walk::Outer && g.b_cs != 1
}

/// Bytes that come from memory: every operand once if together they exceed the last cache, whole lines if gathered.
fn memory(workload: &Workload, g: &Gemm<()>, size: usize, caches: &Caches) -> f64 {
    let apart = (g.b_cs.unsigned_abs().min(g.b_rs.unsigned_abs()) * size) as f64;
    let times = if gathered(g) { (apart.min(LINE) / size as f64).max(1.0) } else { 1.0 };
    let bytes = workload.bytes() as f64 * times;
    if caches.l3.or(caches.l2).is_some_and(|level| bytes > level as f64) { bytes } else { 0.0 }
}

/// Vector instructions and bytes of one product.
fn count(g: &Gemm<()>, plan: &Plan, stored: f64, wide: f64, caches: &Caches) -> (f64, Traffic) {
    let lanes = plan.lanes as f64;
    let (m, n, k) = (g.m as f64, g.n as f64, g.k as f64);
    let beyond = |bytes: f64, level: Option<usize>| level.is_none_or(|size| bytes > size as f64);
    let matrix = k * n * stored;
    let (mut vectors, l1, again);
    match plan.walk {
        Walk::Outer => {
            let groups = g.m.div_ceil(outer::group_rows(plan.lanes * wide as usize)) as f64;
            let columns = g.n.next_multiple_of(plan.width) as f64;
            let rounds = g.k.div_ceil(outer::STREAMS) as f64;
            // Every round reads and writes every sum; every step reads its vectors once per group and an element
            // of each row per tile.
            let sums = 2.0 * m * columns * rounds;
            // Steps of too few sums wait for one another.
            let chains = (m * columns / lanes / IN_FLIGHT).min(1.0);
            vectors = m * columns / lanes * k / chains + sums / lanes;
            l1 = groups * matrix + sums * wide + m * k * wide * (columns / plan.width as f64);
            // Sums that outgrow the first level go to the second and back.
            again = if beyond(m * columns * wide, caches.l1d.map(|l1| l1 / 2)) { sums * wide } else { 0.0 };
        }
        Walk::Dot => {
            let register_bytes = plan.lanes * wide as usize;
            let (rows, columns) = dot::tile(g.m, register_bytes);
            let (groups, tiles) = ((m / rows as f64).ceil(), (n / columns as f64).ceil());
            // A tree of additions at the end of every sum.
            vectors = m * n * ((k / lanes).ceil() + 2.0 * lanes.log2());
            // Rows that are not read where they lie are copied first, one element at a time.
            if plan.packed > 0 {
                vectors += 2.0 * m * k;
            }
            l1 = groups * matrix + tiles * m * k * wide;
            let block = m * dot::steps(g.m, g.k, register_bytes, wide as usize) as f64 * wide;
            again = if beyond(block, caches.l1d.map(|l1| l1 / 2)) { tiles * m * k * wide } else { 0.0 };
        }
    }
    if stored < wide {
        // Every vector of the matrix is converted for each group of rows: a widening and a shift.
        vectors += 2.0 * (l1 / matrix.max(1.0)).min(m) * k * n / lanes;
    }
    if gathered(g) {
        // An element takes the instructions of a vector.
        vectors += 2.0 * k * n;
    }
    let working_set = matrix + m * (k + n) * wide;
    let l2 = again + if beyond(working_set, caches.l1d) { matrix } else { 0.0 };
    let l3 = if beyond(working_set, caches.l2) { matrix } else { 0.0 };
    (vectors, Traffic { l1, l2, l3, memory: 0.0 })
}

//! Blocks of both operands in the workgroup's memory, a tile of results in the registers of each invocation: for GPUs
//! whose caches are small.

use std::fmt::Write;

use super::registers::{Tile, place, store};
use super::{Product, checks};
use crate::backends::webgpu::wgsl::{GROUP, fits};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::matmul::shared`
pub(super) struct Shared;

/// Fills both blocks from step `start` on, four neighbours at a time; zeros beyond the ends.
const FILL: &str = "
for (var i = lane; i < BK * BM / 4u; i += WX * WY) {
    let k = start + i % BK;
    let row = block_m * BM + i / BK * 4u;
    var x = vec4<f32>();
    if (k < s.k) {
        let at = a_at + row * s.a_rs + k * s.a_cs;
        if (row < s.m) { x.x = f32(a[at]); }
        if (row + 1u < s.m) { x.y = f32(a[at + s.a_rs]); }
        if (row + 2u < s.m) { x.z = f32(a[at + 2u * s.a_rs]); }
        if (row + 3u < s.m) { x.w = f32(a[at + 3u * s.a_rs]); }
    }
    left[i % BK * (BM / 4u) + i / BK] = x;
}
for (var i = lane; i < BK * BN / 4u; i += WX * WY) {
    let k = start + i / (BN / 4u);
    let column = block_n * BN + i % (BN / 4u) * 4u;
    var y = vec4<f32>();
    if (k < s.k) {
        let at = b_at + k * s.b_rs + column * s.b_cs;
        if (column < s.n) { y.x = f32(b[at]); }
        if (column + 1u < s.n) { y.y = f32(b[at + s.b_cs]); }
        if (column + 2u < s.n) { y.z = f32(b[at + 2u * s.b_cs]); }
        if (column + 3u < s.n) { y.w = f32(b[at + 3u * s.b_cs]); }
    }
    right[i] = y;
}
workgroupBarrier();
";

/// Tile and depth of a point; columns of an invocation are vectors of four.
fn cut(parameters: &Parameters) -> (Tile, u32) {
    let tile = Tile { vector: 4, loads: 4, ..Tile::of(parameters) };
    (tile, parameters.get(Knob::BlockK).unwrap_or(8))
}

/// Bytes of both blocks.
fn memory(tile: &Tile, depth: u32) -> u32 {
    let [rows, columns] = tile.block();
    4 * depth * (rows + columns) as u32
}

/// The sums of one step from the blocks.
fn step(tile: &Tile) -> String {
    let (fours, vectors) = (tile.rows / 4, tile.columns / 4);
    let mut text = String::new();
    for j in 0..vectors {
        let _ = writeln!(text, "let y{j} = right[i * (BN / 4u) + local.x + {}u];", j * tile.x);
    }
    for q in 0..fours {
        let _ = writeln!(text, "let x{q} = left[i * (BM / 4u) + local.y * {fours}u + {q}u];");
        for (r, part) in ["x", "y", "z", "w"].iter().enumerate() {
            for j in 0..vectors {
                let _ = writeln!(text, "c{}_{j} += x{q}.{part} * y{j};", 4 * q as usize + r);
            }
        }
    }
    text
}

impl Shared {
    fn body(product: &Product, tile: &Tile) -> String {
        let mut sums = String::new();
        for r in 0..tile.rows {
            for j in 0..tile.columns / 4 {
                let _ = writeln!(sums, "var c{r}_{j} = vec4<f32>();");
            }
        }
        // Stored one by one: the result's rows need not be whole vectors.
        let one = store(product, 1);
        let write = |row: &str, column: &str, sum: &str| -> String {
            ["x", "y", "z", "w"]
                .iter()
                .enumerate()
                .map(|(i, part)| {
                    let at = format!("({column} + {i}u)");
                    format!("if ({at} < s.n) {{ {} }}\n", one(row, &at, &format!("{sum}.{part}")))
                })
                .collect::<Vec<_>>()
                .concat()
        };
        format!(
            "{GROUP}{}if (rest >= s.count) {{ return; }}\n{}{sums}\
             let first_row = block_m * BM + local.y * {}u;\nlet first_column = block_n * BN + local.x * 4u;\n\
             for (var start = 0u; start < s.k; start += BK) {{\n{FILL}\
             for (var i = 0u; i < BK; i++) {{\n{}}}\nworkgroupBarrier();\n}}\n{}",
            place(tile),
            product.starts(),
            tile.rows,
            step(tile),
            tile.epilogue(write),
        )
    }
}

impl WebGpuKernel for Shared {
    fn name(&self) -> &'static str {
        "webgpu::matmul::shared"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_shared.rs", "webgpu_registers.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let (tile, depth) = cut(&Parameters::new().with(Knob::WorkgroupY, 8));
        let fit = fits(limits, [tile.x, tile.y, 1], memory(&tile, depth));
        // A turn of the sum for each step, and those that fill the blocks.
        let turns = 3 * Product::of(workload).k;
        checks(workload, limits).needs(fit, "workgroups of 64 and 4 KiB of their memory").turns(turns).done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::TileM, &[8, 4])
            .axis(Knob::TileN, &[8, 4])
            .axis(Knob::WorkgroupX, &[8, 16])
            .axis(Knob::WorkgroupY, &[8, 16])
            .axis(Knob::BlockK, &[8, 16])
            .constrained(|p| {
                let (tile, depth) = cut(p);
                fits(limits, [tile.x, tile.y, 1], memory(&tile, depth)) && tile.x == tile.y
            })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let [rows, columns] = cut(parameters).0.block();
        Product::of(workload).cost(rows, columns)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.is_empty() {
            return Plan::default();
        }
        let (tile, depth) = cut(parameters);
        let [rows, columns] = tile.block().map(|n| n as u32);
        let numbers = product.numbers().with("count", product.count());
        let (x, y) = (tile.x, tile.y);
        let shader = product
            .shader(self.name(), [x, y, 1], [1; 3])
            .numbers(&numbers)
            .shared("left", "vec4<f32>", 16, depth * rows / 4)
            .shared("right", "vec4<f32>", 16, depth * columns / 4)
            .with(format!(
                "const BM = {rows}u; const BN = {columns}u; const BK = {depth}u; const WX = {x}u; const WY = {y}u;"
            ))
            .main(Self::body(&product, &tile));
        product.plan(shader, &numbers, tile.blocks(&product) * product.count())
    }
}

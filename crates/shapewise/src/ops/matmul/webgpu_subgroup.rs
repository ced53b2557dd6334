//! Rows of the left operand spread over the lanes of a subgroup, which hand their elements around: one load of the left
//! operand serves all columns of the subgroup.

use std::fmt::Write;

use super::registers::{Tile, place, store};
use super::{Product, checks};
use crate::backends::webgpu::wgsl::{GROUP, fits, most_held};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::matmul::subgroup`
pub(super) struct Subgroup;

/// A workgroup is one line of invocations along the columns.
fn tile(parameters: &Parameters) -> Tile {
    Tile { y: 1, vector: 1, ..Tile::of(parameters) }
}

/// Each lane loads one element of every row, which all read in turn.
fn steps(tile: &Tile) -> String {
    let (mut loads, mut sums) = (String::new(), String::new());
    for r in 0..tile.rows {
        let _ = writeln!(loads, "let left{r} = f32(a[a{r} + own]);");
    }
    for j in 0..tile.columns {
        let _ = writeln!(sums, "let y{j} = f32(b[b{j} + (k + i) * s.b_rs]);");
    }
    for r in 0..tile.rows {
        let _ = writeln!(sums, "let x{r} = subgroupShuffle(left{r}, i);");
        for j in 0..tile.columns {
            let _ = writeln!(sums, "c{r}_{j} += x{r} * y{j};");
        }
    }
    format!(
        "for (var k = 0u; k < s.k; k += subgroup) {{\nlet own = min(k + lane_in_subgroup, s.k - 1u) * s.a_cs;\n{loads}\
         let many = min(subgroup, s.k - k);\nfor (var i = 0u; i < many; i++) {{\n{sums}}}\n}}\n"
    )
}

/// The one size that all subgroups of the device have.
fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

impl WebGpuKernel for Subgroup {
    fn name(&self) -> &'static str {
        "webgpu::matmul::subgroup"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn variant(&self) -> Variant {
        Variant::HardwareSpecific
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_subgroup.rs", "webgpu_registers.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let known = lanes(limits);
        let fit = known.is_none_or(|lanes| fits(limits, [lanes, 1, 1], 0));
        checks(workload, limits)
            .with_subgroups()
            .needs(known.is_some(), "subgroups of one size")
            .needs(fit, "workgroups as wide as a subgroup")
            .turns(Product::of(workload).k * 9 / 8 + 1)
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let product = Product::of(workload);
        let lanes = lanes(limits).unwrap_or(1);
        let rows: &[u32] = match product.m {
            1 => &[1],
            2..=4 => &[4],
            5..=8 => &[8, 4],
            9..=16 => &[16, 8],
            17..=63 => &[32, 16, 8],
            _ => &[64, 32, 16, 8],
        };
        let columns: &[u32] = if product.n <= lanes as usize { &[1] } else { &[8, 4] };
        // Whole subgroups: every lane that is asked for an element takes part.
        ParameterSpace::single()
            .axis(Knob::TileM, rows)
            .axis(Knob::TileN, columns)
            .axis(Knob::WorkgroupX, &[lanes])
            .constrained(|p| tile(p).rows * tile(p).columns <= most_held(limits))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let [rows, columns] = tile(parameters).block();
        Product::of(workload).cost(rows, columns)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.is_empty() {
            return Plan::default();
        }
        let tile = tile(parameters);
        let numbers = product.numbers().with("count", product.count());
        let body = format!(
            "{GROUP}{}if (rest >= s.count) {{ return; }}\n{}{}{}{}",
            place(&tile),
            product.starts(),
            tile.prologue(),
            steps(&tile),
            tile.epilogue(store(&product, 1)),
        );
        let shader = product.shader(self.name(), [tile.x, 1, 1], 1).subgroups().numbers(&numbers).main(body);
        product.plan(shader, &numbers, tile.blocks(&product) * product.count())
    }
}

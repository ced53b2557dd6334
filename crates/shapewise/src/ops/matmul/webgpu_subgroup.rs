//! Rows of the left operand spread over the lanes of a subgroup, which hand their elements around: one load of the left
//! operand serves all columns of the subgroup, and the right one is loaded by single columns or four at a time.

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
    Tile { y: 1, ..Tile::of(parameters) }
}

/// Each lane loads the left operand's elements of its own rows, which all read in turn.
fn steps(tile: &Tile, lanes: u32) -> String {
    let (mut own, mut step) = (String::new(), String::new());
    for q in 0..tile.rows.div_ceil(lanes) {
        let at = q * lanes;
        let _ = writeln!(
            own,
            "let own{q} = a_at + min(first_row + {at}u + lane_in_subgroup, s.m - 1u) * s.a_rs;"
        );
        let _ = writeln!(step, "let left{q} = f32(a[own{q} + k * s.a_cs]);");
    }
    for j in 0..tile.vectors() {
        let _ = match tile.vector {
            1 => writeln!(step, "let y{j} = f32(b[b{j} + k * s.b_rs]);"),
            _ => writeln!(step, "let y{j} = vec4<f32>(b[(b{j} + k * s.b_rs) >> 2u]);"),
        };
    }
    for r in 0..tile.rows {
        let _ = writeln!(step, "let x{r} = subgroupBroadcast(left{}, {}u);", r / lanes, r % lanes);
        for j in 0..tile.vectors() {
            let _ = writeln!(step, "c{r}_{j} += x{r} * y{j};");
        }
    }
    format!("{own}for (var k = 0u; k < s.k; k++) {{\n{step}}}\n")
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
            .turns(Product::of(workload).k)
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
        let vector: &[u32] = if product.columns_by_four() { &[4, 1] } else { &[1] };
        // Whole subgroups: every lane that is asked for an element takes part.
        ParameterSpace::single()
            .axis(Knob::TileM, rows)
            .axis(Knob::TileN, columns)
            .axis(Knob::WorkgroupX, &[lanes])
            .axis(Knob::Vector, vector)
            .constrained(|p| {
                let tile = tile(p);
                tile.rows * tile.columns <= most_held(limits) && tile.columns >= tile.vector
            })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let [rows, columns] = tile(parameters).block();
        Product::of(workload).cost(rows, columns)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
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
            steps(&tile, lanes(limits).unwrap_or(1)),
            tile.epilogue(store(&product, tile.vector)),
        );
        let shader = product.shader(self.name(), [tile.x, 1, 1], [1, tile.vector, tile.vector]);
        let shader = shader.subgroups().numbers(&numbers).main(body);
        product.plan(shader, &numbers, tile.blocks(&product) * product.count())
    }
}

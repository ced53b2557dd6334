//! The convolution as a product of weights and of the inputs that each output sees, without writing those down: a tile of
//! channels by pixels in the registers of each invocation.

use std::fmt::Write;

use super::{Geometry, checks};
use crate::backends::webgpu::wgsl::{GROUP, dispatch, fits, line_of_groups, most_held};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// The product, with weights from memory or handed around in a subgroup.
pub(super) struct Implicit {
    name: &'static str,
    subgroup: bool,
}

pub(super) static REGISTERS: Implicit = Implicit { name: "webgpu::conv::implicit", subgroup: false };
pub(super) static SUBGROUP: Implicit = Implicit { name: "webgpu::conv::implicit_subgroup", subgroup: true };

/// Channels and pixels of an invocation, invocations of a workgroup.
#[derive(Clone, Copy)]
struct Tile {
    rows: u32,
    columns: u32,
    x: u32,
}

impl Tile {
    fn of(parameters: &Parameters) -> Self {
        let get = |knob, otherwise| parameters.get(knob).unwrap_or(otherwise);
        Self { rows: get(Knob::TileM, 8), columns: get(Knob::TileN, 4), x: get(Knob::WorkgroupX, 8) }
    }

    /// Channels and pixels of this invocation, and zeros; those beyond the last are computed as the last.
    fn prologue(&self) -> String {
        let Self { rows, columns, x } = *self;
        let mut text = format!(
            "let pixels = s.images * s.out_d * s.out_h * s.out_w;\nlet blocks_p = (pixels + {0}u - 1u) / {0}u;\n\
             let blocks_o = (s.o + {rows}u - 1u) / {rows}u;\nlet first_o = line / blocks_p % blocks_o * {rows}u;\n\
             let part = line / blocks_p / blocks_o;\nif (part >= s.groups) {{ return; }}\n\
             let first_p = line % blocks_p * {0}u + lane;\nlet w_at = part * s.w0;\n",
            x * columns
        );
        for j in 0..columns {
            let _ = writeln!(
                text,
                "let p{j} = min(first_p + {}u, pixels - 1u);\nlet ow{j} = p{j} % s.out_w;\nlet oh{j} = p{j} / s.out_w % s.out_h;\n\
                 let od{j} = p{j} / s.out_w / s.out_h % s.out_d;\nlet n{j} = p{j} / s.out_w / s.out_h / s.out_d;\n\
                 let x_at{j} = n{j} * s.x0 + part * s.c * s.x1;",
                j * x
            );
        }
        for r in 0..rows {
            let _ = writeln!(text, "let w{r} = w_at + min(first_o + {r}u, s.o - 1u) * s.w1;");
            for j in 0..columns {
                let _ = writeln!(text, "var c{r}_{j} = 0.0;");
            }
        }
        text
    }

    /// Where each pixel's input is under the tap `kd, kh, kw`, and whether it is there at all.
    fn tap(&self) -> String {
        let mut text = String::from("let tap = kd * s.w3 + kh * s.w4 + kw * s.w5;\n");
        for j in 0..self.columns {
            for axis in ["d", "h", "w"] {
                let _ = writeln!(
                    text,
                    "let i{axis}{j} = i32(o{axis}{j} * s.stride_{axis} + k{axis} * s.dilation_{axis}) - bitcast<i32>(s.before_{axis});"
                );
            }
            let _ = writeln!(
                text,
                "let there{j} = id{j} >= 0 && id{j} < i32(s.in_d) && ih{j} >= 0 && ih{j} < i32(s.in_h) && iw{j} >= 0 && iw{j} < i32(s.in_w);\n\
                 let from{j} = select(0u, x_at{j} + u32(id{j}) * s.x2 + u32(ih{j}) * s.x3 + u32(iw{j}) * s.x4, there{j});"
            );
        }
        text
    }

    /// The sums of input channel `c`, with the weight of each row.
    fn step(&self, weight: impl Fn(u32) -> String) -> String {
        let mut text = String::from("{\n");
        for j in 0..self.columns {
            let _ = writeln!(text, "let b{j} = select(0.0, f32(x[from{j} + c * s.x1]), there{j});");
        }
        for r in 0..self.rows {
            let _ = writeln!(text, "let a{r} = {};", weight(r));
            for j in 0..self.columns {
                let _ = writeln!(text, "c{r}_{j} += a{r} * b{j};");
            }
        }
        text.push_str("}\n");
        text
    }

    /// The loop over input channels; each lane of a subgroup loads the weights of its own output channels.
    fn channels(&self, lanes: Option<u32>) -> String {
        let Some(lanes) = lanes else {
            let one = self.step(|r| format!("f32(w[w{r} + tap + c * s.w2])"));
            return format!("for (var c = 0u; c < s.c; c++) {{\n{one}}}\n");
        };
        let mut text = String::new();
        for q in 0..self.rows.div_ceil(lanes) {
            let _ = writeln!(text, "let held{q} = f32(w[own{q} + tap + c * s.w2]);");
        }
        let one = self.step(|r| format!("subgroupBroadcast(held{}, {}u)", r / lanes, r % lanes));
        format!("for (var c = 0u; c < s.c; c++) {{\n{text}{one}}}\n")
    }

    /// The output channels whose weights this lane loads.
    fn own(&self, lanes: u32) -> String {
        let mut text = String::new();
        for q in 0..self.rows.div_ceil(lanes) {
            let _ = writeln!(
                text,
                "let own{q} = w_at + min(first_o + {}u + lane_in_subgroup, s.o - 1u) * s.w1;",
                q * lanes
            );
        }
        text
    }

    fn epilogue(&self) -> String {
        let mut text = String::new();
        for j in 0..self.columns {
            let _ = writeln!(
                text,
                "if (first_p + {}u < pixels) {{\nlet to = n{j} * s.y0 + od{j} * s.y2 + oh{j} * s.y3 + ow{j} * s.y4;",
                j * self.x
            );
            for r in 0..self.rows {
                let _ = writeln!(
                    text,
                    "if (first_o + {r}u < s.o) {{ let channel = part * s.o + first_o + {r}u; y[to + channel * s.y1] = finish(c{r}_{j}, channel); }}"
                );
            }
            text.push_str("}\n");
        }
        text
    }
}

fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

impl WebGpuKernel for Implicit {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn variant(&self) -> Variant {
        if self.subgroup { Variant::HardwareSpecific } else { Variant::Optimised }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_implicit.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let [d, h, _] = g.kernel;
        let checks = checks(workload, limits)
            .needs(!g.attributes.transposed, "a convolution that is not transposed")
            .turns(g.taps() * (g.c + 1) + d * h + d);
        if self.subgroup {
            return checks.with_subgroups().needs(lanes(limits).is_some(), "subgroups of one size").done();
        }
        checks.done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let g = Geometry::of(workload);
        let width = if self.subgroup { lanes(limits).unwrap_or(1) } else { 8 };
        let rows: &[u32] = match g.o {
            1..=4 => &[4],
            5..=8 => &[8],
            9..=16 => &[16, 8],
            64.. if self.subgroup => &[64, 32, 16, 8],
            _ if self.subgroup => &[32, 16, 8],
            _ => &[16, 8],
        };
        let columns: &[u32] = if self.subgroup { &[8, 4] } else { &[16, 4] };
        let widths: &[u32] = if self.subgroup { &[width] } else { &[8, 64] };
        ParameterSpace::single()
            .axis(Knob::TileM, rows)
            .axis(Knob::TileN, columns)
            .axis(Knob::WorkgroupX, widths)
            .constrained(|p| {
                let tile = Tile::of(p);
                fits(limits, [tile.x, 1, 1], 0) && tile.rows * tile.columns <= most_held(limits)
            })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let Tile { rows, columns, x } = Tile::of(parameters);
        Geometry::of(workload).cost(workload, f64::from(rows.min(columns * x)))
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.is_empty() {
            return Plan::default();
        }
        let tile = Tile::of(parameters);
        let lanes = if self.subgroup { lanes(limits) } else { None };
        let body = format!(
            "{GROUP}{}{}for (var kd = 0u; kd < s.kernel_d; kd++) {{ for (var kh = 0u; kh < s.kernel_h; kh++) {{ for (var kw = 0u; kw < s.kernel_w; kw++) {{\n{}{}}} }} }}\n{}",
            tile.prologue(),
            lanes.map_or_else(String::new, |lanes| tile.own(lanes)),
            tile.tap(),
            tile.channels(lanes),
            tile.epilogue()
        );
        let wgsl = g.shader(self.name, [tile.x, 1, 1]);
        let shader = if self.subgroup { wgsl.subgroups().main(body) } else { wgsl.main(body) };
        let blocks = g.pixels().div_ceil((tile.x * tile.columns) as usize) * g.o.div_ceil(tile.rows as usize);
        let groups = line_of_groups(blocks * g.groups);
        let run = dispatch(0, &g.places(workload), &g.numbers(), groups);
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}

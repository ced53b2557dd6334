//! Every channel by itself: a run of outputs along the width from each invocation, weights and inputs loaded once for all
//! of them.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Geometry, checks};
use crate::backends::webgpu::wgsl::{GROUP, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::conv::depthwise`
pub(super) struct Depthwise;

/// The widest kernel whose weights are written out.
const WIDEST: usize = 16;

const PLACE: &str = "
let index = line * WX + lane;
let runs = (s.out_w + RUN - 1u) / RUN;
let channels = s.groups * s.o;
if (index >= s.images * channels * s.out_d * s.out_h * runs) { return; }
let ow = index % runs * RUN;
let oh = index / runs % s.out_h;
let od = index / runs / s.out_h % s.out_d;
let channel = index / runs / s.out_h / s.out_d % channels;
let image = index / runs / s.out_h / s.out_d / channels;
let part = channel / s.o;
let x_at = image * s.x0 + part * s.x1;
let w_at = part * s.w0 + channel % s.o * s.w1;
let left = i32(ow * s.stride_w) - bitcast<i32>(s.before_w);
";

const ROWS: &str = "
for (var kd = 0u; kd < s.kernel_d; kd++) {
    let id = i32(od * s.stride_d + kd * s.dilation_d) - bitcast<i32>(s.before_d);
    for (var kh = 0u; kh < s.kernel_h; kh++) {
        let ih = i32(oh * s.stride_h + kh * s.dilation_h) - bitcast<i32>(s.before_h);
        let there = id >= 0 && id < i32(s.in_d) && ih >= 0 && ih < i32(s.in_h);
        let from_x = select(0u, x_at + u32(id) * s.x2 + u32(ih) * s.x3, there);
        let from_w = w_at + kd * s.w3 + kh * s.w4;
";

/// One row of weights against the inputs of a run.
fn row(g: &Geometry, run: usize) -> String {
    let (step, apart) = (g.attributes.stride[2] as usize, g.attributes.dilation[2] as usize);
    let width = g.kernel[2];
    let needed: BTreeSet<usize> =
        (0..run).flat_map(|j| (0..width).map(move |k| j * step + k * apart)).collect();
    let mut text = String::new();
    for at in needed {
        let _ = writeln!(
            text,
            "let at{at} = left + {at};\nlet ok{at} = there && at{at} >= 0 && at{at} < i32(s.in_w);\n\
             let x{at} = select(0.0, f32(x[select(0u, from_x + u32(at{at}) * s.x4, ok{at})]), ok{at});"
        );
    }
    for k in 0..width {
        let _ = writeln!(text, "let w{k} = f32(w[from_w + {k}u * s.w5]);");
        for j in 0..run {
            let _ = writeln!(text, "c{j} += x{} * w{k};", j * step + k * apart);
        }
    }
    text
}

impl WebGpuKernel for Depthwise {
    fn name(&self) -> &'static str {
        "webgpu::conv::depthwise"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_depthwise.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let narrow = g.kernel[2] <= WIDEST;
        let near = g.attributes.stride[2] <= 64 && g.attributes.dilation[2] <= 64;
        checks(workload, limits)
            .needs(g.c == 1 && !g.attributes.transposed, "one input channel for each group, not transposed")
            .needs(narrow && near, "kernels at most 16 wide, with a stride and a dilation of at most 64")
            .turns(g.kernel[0] * (g.kernel[1] + 1))
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::TileN, &[8, 4, 1])
            .axis(Knob::WorkgroupX, &[64])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        Geometry::of(workload).cost(workload, f64::from(parameters.get(Knob::TileN).unwrap_or(1)))
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.is_empty() {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let run = parameters.get(Knob::TileN).unwrap_or(1) as usize;
        let zeros = (0..run).map(|j| format!("var c{j} = 0.0;\n")).collect::<Vec<_>>().concat();
        let stores = (0..run)
            .map(|j| format!("if (ow + {j}u < s.out_w) {{ y[to + {j}u * s.y4] = finish(c{j}, channel); }}\n"))
            .collect::<Vec<_>>()
            .concat();
        let to = "let to = image * s.y0 + channel * s.y1 + od * s.y2 + oh * s.y3 + ow * s.y4;\n";
        let shader = g
            .shader(self.name(), [x, 1, 1])
            .with(format!("const WX = {x}u; const RUN = {run}u;"))
            .main(format!("{GROUP}{PLACE}{zeros}{ROWS}{}}}\n}}\n{to}{stores}", row(&g, run)));
        let [d, h, w] = g.output;
        let runs = g.n * g.groups * g.o * d * h * w.div_ceil(run);
        let run = dispatch(0, &g.places(workload), &g.numbers(), line_of_groups(runs.div_ceil(x as usize)));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}

//! One output from each invocation, for every convolution, transposed ones too.

use super::{Geometry, checks};
use crate::backends::webgpu::wgsl::{GROUP, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::conv::direct`
pub(super) struct Direct;

/// The place in the input that an output's tap meets, which may lie in the padding; `NONE` between two inputs of a transposed convolution.
const PLACES: &str = "
const NONE = -0x40000000i;
fn place(out: u32, tap: u32, stride: u32, dilation: u32, before: u32) -> i32 {
    return i32(out * stride + tap * dilation) - bitcast<i32>(before);
}
fn place_transposed(out: u32, tap: u32, stride: u32, dilation: u32, before: u32) -> i32 {
    let spread = i32(out) + bitcast<i32>(before) - i32(tap * dilation);
    return select(NONE, spread / i32(stride), spread % i32(stride) == 0);
}
";

const BODY: &str = "
let index = line * WX + lane;
let pixels = s.out_d * s.out_h * s.out_w;
let channels = s.groups * s.o;
if (index >= s.images * channels * pixels) { return; }
let ow = index % s.out_w;
let oh = index / s.out_w % s.out_h;
let od = index / s.out_w / s.out_h % s.out_d;
let channel = index / pixels % channels;
let image = index / pixels / channels;
let part = channel / s.o;
let x_at = image * s.x0 + part * s.c * s.x1;
let w_at = part * s.w0 + channel % s.o * s.w1;
var sum = 0.0;
for (var kd = 0u; kd < s.kernel_d; kd++) {
    let id = PLACE(od, kd, s.stride_d, s.dilation_d, s.before_d);
    if (id == NONE) { continue; }
    for (var kh = 0u; kh < s.kernel_h; kh++) {
        let ih = PLACE(oh, kh, s.stride_h, s.dilation_h, s.before_h);
        if (ih == NONE) { continue; }
        let there = id >= 0 && id < i32(s.in_d) && ih >= 0 && ih < i32(s.in_h);
        for (var kw = 0u; kw < s.kernel_w; kw++) {
            let iw = PLACE(ow, kw, s.stride_w, s.dilation_w, s.before_w);
            if (iw == NONE) { continue; }
            let ok = there && iw >= 0 && iw < i32(s.in_w);
            let from_x = select(0u, x_at + u32(id) * s.x2 + u32(ih) * s.x3 + u32(iw) * s.x4, ok);
            let from_w = w_at + kd * s.w3 + kh * s.w4 + kw * s.w5;
            for (var c = 0u; c < s.c; c++) {
                // Padding counts as zeros, also under weights that are not finite.
                sum += select(0.0, f32(x[from_x + c * s.x1]), ok) * f32(w[from_w + c * s.w2]);
            }
        }
    }
}
y[image * s.y0 + channel * s.y1 + od * s.y2 + oh * s.y3 + ow * s.y4] = finish(sum, channel);
";

impl WebGpuKernel for Direct {
    fn name(&self) -> &'static str {
        "webgpu::conv::direct"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_direct.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let [d, h, _] = g.kernel;
        checks(workload, limits).turns(g.taps() * (g.c + 1) + d * h + d).done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::WorkgroupX, &[64, 256])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        Geometry::of(workload).cost(workload, 1.0)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.is_empty() {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let place = if g.attributes.transposed { "place_transposed" } else { "place" };
        let shader = g
            .shader(self.name(), [x, 1, 1])
            .with(format!("const WX = {x}u;\n{PLACES}"))
            .main(format!("{GROUP}{}", BODY.replace("PLACE", place)));
        let groups = line_of_groups((g.pixels() * g.groups * g.o).div_ceil(x as usize));
        let run = dispatch(0, &g.places(workload), &g.numbers(), groups);
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}

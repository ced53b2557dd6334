//! One result for each invocation: straight from memory, or by square tiles in the workgroup's memory.

use super::{Product, checks};
use crate::backends::webgpu::wgsl::{GROUP, fits};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// Both kernels of one result for each invocation.
pub(super) struct OneEach {
    name: &'static str,
    tiled: bool,
}

pub(super) static NAIVE: OneEach = OneEach { name: "webgpu::matmul::naive", tiled: false };
pub(super) static TILED: OneEach = OneEach { name: "webgpu::matmul::tiled", tiled: true };

/// Row, column and start of the product of this invocation.
const PLACE: &str = "
let tiles_n = (s.n + WX - 1u) / WX;
let tiles_m = (s.m + WY - 1u) / WY;
let row = line / tiles_n % tiles_m * WY + local.y;
let column = line % tiles_n * WX + local.x;
var rest = line / tiles_n / tiles_m;
let beyond = rest >= s.count;
";

const NAIVE_BODY: &str = "
if (beyond || row >= s.m || column >= s.n) { return; }
var sum = 0.0;
for (var i = 0u; i < s.k; i++) {
    sum += f32(a[a_at + row * s.a_rs + i * s.a_cs]) * f32(b[b_at + i * s.b_rs + column * s.b_cs]);
}
c[c_at + row * s.c_rs + column * s.c_cs] = ELEMENT(finish(sum, column));
";

const TILED_BODY: &str = "
var sum = 0.0;
for (var start = 0u; start < s.k; start += WX) {
    let across = start + local.x;
    let down = start + local.y;
    var left = 0.0;
    var right = 0.0;
    if (row < s.m && across < s.k && !beyond) { left = f32(a[a_at + row * s.a_rs + across * s.a_cs]); }
    if (down < s.k && column < s.n && !beyond) { right = f32(b[b_at + down * s.b_rs + column * s.b_cs]); }
    left_tile[local.y * WX + local.x] = left;
    right_tile[local.y * WX + local.x] = right;
    workgroupBarrier();
    for (var i = 0u; i < WX; i++) { sum += left_tile[local.y * WX + i] * right_tile[i * WX + local.x]; }
    workgroupBarrier();
}
if (beyond || row >= s.m || column >= s.n) { return; }
c[c_at + row * s.c_rs + column * s.c_cs] = ELEMENT(finish(sum, column));
";

impl OneEach {
    fn workgroup(&self, parameters: &Parameters) -> [u32; 3] {
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(8);
        [x, if self.tiled { x } else { parameters.get(Knob::WorkgroupY).unwrap_or(8) }, 1]
    }
}

impl WebGpuKernel for OneEach {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn variant(&self) -> Variant {
        if self.tiled { Variant::Tiled } else { Variant::Naive }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_naive.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let shared = if self.tiled { 2 * 4 * 64 } else { 0 };
        let fit = fits(limits, [8, 8, 1], shared);
        let k = Product::of(workload).k;
        let turns = if self.tiled { k + k / 8 } else { k };
        checks(workload, limits)
            .needs(fit, "workgroups of 64 and 512 bytes of their memory")
            .turns(turns)
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let space = ParameterSpace::single().axis(Knob::WorkgroupX, &[8, 16, 32]);
        let space = if self.tiled { space } else { space.axis(Knob::WorkgroupY, &[8, 1]) };
        space.constrained(|p| {
            let [x, y, z] = self.workgroup(p);
            fits(limits, [x, y, z], if self.tiled { 8 * x * x } else { 0 })
        })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let [x, y, _] = self.workgroup(parameters);
        let (rows, columns) = if self.tiled { (y as usize, x as usize) } else { (1, 1) };
        Product::of(workload).cost(rows, columns)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.is_empty() {
            return Plan::default();
        }
        let [x, y, z] = self.workgroup(parameters);
        let numbers = product.numbers().with("count", product.count());
        let shader = product.shader(self.name, [x, y, z], [1; 3]).numbers(&numbers);
        let shader = shader.with(format!("const WX = {x}u; const WY = {y}u;"));
        let (shader, body) = if self.tiled {
            (shader.shared("left_tile", "f32", 4, x * x).shared("right_tile", "f32", 4, x * x), TILED_BODY)
        } else {
            (shader, NAIVE_BODY)
        };
        let body = body.replace("ELEMENT", crate::backends::webgpu::wgsl::element(product.dtype));
        let shader = shader.main(format!("{GROUP}{PLACE}{}{body}", product.starts()));
        let groups = product.m.div_ceil(y as usize) * product.n.div_ceil(x as usize) * product.count();
        product.plan(shader, &numbers, groups)
    }
}

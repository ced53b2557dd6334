//! Winograd's minimal filtering F(2×2, 3×3) and F(4×4, 3×3): weights and tiles of the input are transformed, multiplied
//! channel by channel as matrix products, and transformed back.

use std::fmt::Write;

use super::{Geometry, checks};
use crate::backends::webgpu::wgsl::{GROUP, Numbers, Wgsl, dispatch, element, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::matmul::webgpu::{WEBGPU_KERNELS as PRODUCTS, plan_of, points_of};
use crate::ops::{
    Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::{DType, Shape};

/// One size of tiles, with the matrices of its transforms (Lavin and Gray, 2015).
pub(super) struct Winograd {
    name: &'static str,
    /// Outputs of a tile along each axis.
    m: usize,
    input: &'static [&'static [f64]],
    weights: &'static [&'static [f64]],
    output: &'static [&'static [f64]],
}

pub(super) static F2: Winograd = Winograd {
    name: "webgpu::conv::winograd_f2",
    m: 2,
    input: &[&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]],
    weights: &[&[1.0, 0.0, 0.0], &[0.5, 0.5, 0.5], &[0.5, -0.5, 0.5], &[0.0, 0.0, 1.0]],
    output: &[&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]],
};

pub(super) static F4: Winograd = Winograd {
    name: "webgpu::conv::winograd_f4",
    m: 4,
    input: &[
        &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
        &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
        &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
        &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
        &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
        &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
    ],
    weights: &[
        &[1.0 / 4.0, 0.0, 0.0],
        &[-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
        &[-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
        &[1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
        &[1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
        &[0.0, 0.0, 1.0],
    ],
    output: &[
        &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
        &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
        &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
    ],
};

/// Invocations of a workgroup of the transforms.
const WIDTH: u32 = 64;

/// `t · v · tᵀ` of the square matrix `from`, written as variables `to{i}_{j}`.
fn transform(t: &[&[f64]], from: &str, to: &str) -> String {
    let mut text = String::new();
    for (i, row) in t.iter().enumerate() {
        for j in 0..row.len() {
            let _ = writeln!(text, "let half_{to}{i}_{j} = {};", sum(row, |k| format!("{from}{k}_{j}")));
        }
    }
    for i in 0..t.len() {
        for (j, row) in t.iter().enumerate() {
            let _ = writeln!(text, "let {to}{i}_{j} = {};", sum(row, |k| format!("half_{to}{i}_{k}")));
        }
    }
    text
}

/// A row of a matrix times variables, without those that it leaves out.
fn sum(row: &[f64], variable: impl Fn(usize) -> String) -> String {
    let terms: Vec<_> =
        row.iter()
            .enumerate()
            .filter(|(_, factor)| **factor != 0.0)
            .map(|(k, &factor)| {
                if factor == 1.0 { variable(k) } else { format!("({:?}f * {})", factor as f32, variable(k)) }
            })
            .collect();
    terms.join(" + ")
}

/// A convolution cut into tiles.
struct Tiled {
    g: Geometry,
    alpha: usize,
    /// Tiles down and across, and of all images.
    down: usize,
    across: usize,
    tiles: usize,
}

impl Tiled {
    fn numbers(&self) -> Numbers {
        self.g.numbers().with("down", self.down).with("across", self.across).with("tiles", self.tiles)
    }

    /// Elements of the transformed weights, of the transformed input, and of the products.
    fn sizes(&self) -> [usize; 3] {
        let squares = self.alpha * self.alpha;
        [squares * self.g.o * self.g.c, squares * self.g.c * self.tiles, squares * self.g.o * self.tiles]
    }

    /// The products of transformed weights and tiles, one for each place in a tile.
    fn products(&self) -> Option<Workload> {
        let (count, g) = (self.alpha * self.alpha, &self.g);
        let desc = |m: usize, n: usize| {
            Shape::new(&[count, m, n]).ok().map(|shape| TensorDesc::contiguous(DType::F32, shape))
        };
        let operation = Operation::Matmul(MatmulAttributes::default());
        Some(Workload::new(operation, &[desc(g.o, g.c)?, desc(g.c, self.tiles)?], &[desc(g.o, self.tiles)?]))
    }
}

impl Winograd {
    fn tiled(&self, workload: &Workload) -> Tiled {
        let g = Geometry::of(workload);
        let (down, across) = (g.output[1].div_ceil(self.m), g.output[2].div_ceil(self.m));
        Tiled { g, alpha: self.m + 2, down, across, tiles: g.n * down * across }
    }

    fn shader(&self, what: &str, numbers: &Numbers) -> Wgsl {
        Wgsl::new(format!("{}: {what}", self.name), [WIDTH, 1, 1]).numbers(numbers)
    }

    fn weights(&self, t: &Tiled, numbers: &Numbers) -> Shader {
        let mut body = format!(
            "{GROUP}let index = line * {WIDTH}u + lane;\nif (index >= s.o * s.c) {{ return; }}\n\
             let from_w = index / s.c * s.w1 + index % s.c * s.w2;\n"
        );
        for i in 0..3 {
            for j in 0..3 {
                let _ = writeln!(body, "let v{i}_{j} = f32(w[from_w + {i}u * s.w4 + {j}u * s.w5]);");
            }
        }
        body.push_str(&transform(self.weights, "v", "u"));
        store(&mut body, t.alpha, "s.o * s.c");
        self.shader("weights", numbers).read("w", element(t.g.dtype)).write("u", "f32").main(body)
    }

    fn input(&self, t: &Tiled, numbers: &Numbers) -> Shader {
        let mut body = format!(
            "{GROUP}let index = line * {WIDTH}u + lane;\nif (index >= s.c * s.tiles) {{ return; }}\n\
             let tile = index % s.tiles;\nlet image = tile / s.across / s.down;\n\
             let from_x = image * s.x0 + index / s.tiles * s.x1;\n\
             let top = i32(tile / s.across % s.down * {0}u) - bitcast<i32>(s.before_h);\n\
             let left = i32(tile % s.across * {0}u) - bitcast<i32>(s.before_w);\n",
            self.m
        );
        for i in 0..t.alpha {
            let _ =
                writeln!(body, "let row{i} = top + {i};\nlet ok{i} = row{i} >= 0 && row{i} < i32(s.in_h);");
            for j in 0..t.alpha {
                if i == 0 {
                    let _ = writeln!(
                        body,
                        "let col{j} = left + {j};\nlet in{j} = col{j} >= 0 && col{j} < i32(s.in_w);"
                    );
                }
                let _ = writeln!(
                    body,
                    "let v{i}_{j} = select(0.0, f32(x[select(0u, from_x + u32(row{i}) * s.x3 + u32(col{j}) * s.x4, ok{i} && in{j})]), ok{i} && in{j});"
                );
            }
        }
        body.push_str(&transform(self.input, "v", "u"));
        store(&mut body, t.alpha, "s.c * s.tiles");
        self.shader("input", numbers).read("x", element(t.g.dtype)).write("u", "f32").main(body)
    }

    fn output(&self, t: &Tiled, numbers: &Numbers) -> Shader {
        let mut body = format!(
            "{GROUP}let index = line * {WIDTH}u + lane;\nif (index >= s.o * s.tiles) {{ return; }}\n\
             let tile = index % s.tiles;\nlet channel = index / s.tiles;\nlet image = tile / s.across / s.down;\n\
             let top = tile / s.across % s.down * {0}u;\nlet left = tile % s.across * {0}u;\n\
             let to = image * s.y0 + channel * s.y1 + top * s.y3 + left * s.y4;\n",
            self.m
        );
        for i in 0..t.alpha {
            for j in 0..t.alpha {
                let _ = writeln!(body, "let v{i}_{j} = u[{}u * s.o * s.tiles + index];", i * t.alpha + j);
            }
        }
        body.push_str(&transform(self.output, "v", "r"));
        for i in 0..self.m {
            for j in 0..self.m {
                let _ = writeln!(
                    body,
                    "if (top + {i}u < s.out_h && left + {j}u < s.out_w) {{ y[to + {i}u * s.y3 + {j}u * s.y4] = finish(r{i}_{j}, channel); }}"
                );
            }
        }
        let name = element(t.g.dtype);
        let wgsl = self.shader("output", numbers).read("u", "f32");
        let wgsl = if t.g.attributes.bias { wgsl.read("bias", name) } else { wgsl };
        wgsl.write("y", name).with(t.g.finish()).main(body)
    }
}

/// Each place of a transformed tile into its own matrix.
fn store(body: &mut String, alpha: usize, matrix: &str) {
    for i in 0..alpha {
        for j in 0..alpha {
            let _ = writeln!(body, "u[{}u * {matrix} + index] = u{i}_{j};", i * alpha + j);
        }
    }
}

impl WebGpuKernel for Winograd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn source(&self) -> u64 {
        PRODUCTS.iter().fold(source_hash!("webgpu_winograd.rs", "webgpu.rs"), |hash, kernel| {
            hash.rotate_left(7) ^ kernel.source()
        })
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let t = self.tiled(workload);
        let g = &t.g;
        let flat = g.input[0] == 1 && g.output[0] == 1 && g.attributes.before[0] == 0;
        let most = limits.storage_binding.min(limits.buffer);
        let small = t.sizes().into_iter().all(|n| 4 * n as u64 <= most);
        let taken = t.products().is_some_and(|p| PRODUCTS.iter().any(|k| k.supports(&p, limits).is_ok()));
        checks(workload, limits)
            .needs(
                g.kernel == [1, 3, 3] && g.is_dense() && g.groups == 1,
                "3×3 weights, one group, no stride or dilation",
            )
            .needs(flat, "two spatial axes")
            .needs(small, "transformed tiles that fit one buffer")
            .needs(taken && fits(limits, [WIDTH, 1, 1], 0), "products that the device can run")
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let Some(products) = self.tiled(workload).products() else { return ParameterSpace::default() };
        // Of the products' kernels the large tiles, in the list's order; the plain ones would undo what is gained.
        points_of(&products, limits, 3, 3)
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let t = self.tiled(workload);
        let [weights, input, products] = t.sizes().map(|n| n as f64);
        let alpha = t.alpha as f64;
        // Each transform is two products with a matrix of about half as many numbers as places.
        let operations = 2.0 * input * t.g.o as f64 + 2.0 * alpha * (weights + input + products);
        WebGpuCost { operations, bytes: workload.bytes() as f64 + 8.0 * (weights + input + products) }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let t = self.tiled(workload);
        let Some(products) = t.products().filter(|_| !t.g.is_empty()) else { return Plan::default() };
        let Some(mut plan) = plan_of(&products, parameters, limits) else { return Plan::default() };
        let numbers = t.numbers();
        // The products' operands are scratch memory here, before what they need themselves.
        for place in plan.dispatches.iter_mut().flat_map(|d| &mut d.places) {
            *place = match *place {
                Place::Operand(i) => Place::Scratch(i),
                Place::Scratch(i) => Place::Scratch(3 + i),
            };
        }
        let groups = |n: usize| line_of_groups(n.div_ceil(WIDTH as usize));
        let (g, next) = (&t.g, plan.shaders.len());
        let [u, v, m] = [Place::Scratch(0), Place::Scratch(1), Place::Scratch(2)];
        let y = Place::Operand(workload.inputs().len());
        let mut last = vec![m];
        last.extend(g.attributes.bias.then_some(Place::Operand(2)));
        last.push(y);
        let before = [
            dispatch(next, &[Place::Operand(1), u], &numbers, groups(g.o * g.c)),
            dispatch(next + 1, &[Place::Operand(0), v], &numbers, groups(g.c * t.tiles)),
        ];
        plan.shaders.extend([
            self.weights(&t, &numbers),
            self.input(&t, &numbers),
            self.output(&t, &numbers),
        ]);
        plan.scratch = t.sizes().into_iter().map(|n| 4 * n as u64).chain(plan.scratch).collect();
        plan.dispatches = before.into_iter().chain(plan.dispatches).collect();
        plan.dispatches.push(dispatch(next + 2, &last, &numbers, groups(g.o * t.tiles)));
        plan
    }
}

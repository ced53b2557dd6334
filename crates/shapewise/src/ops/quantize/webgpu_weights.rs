//! Products with quantised weights: eight words of an output are eight neighbours at every place of four or eight bits.

use std::fmt::Write;

use super::NUMBERS;
use crate::backends::webgpu::wgsl::{Checks, GROUP, Numbers, Wgsl, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::quantize::weights::{LANES, PANEL, group};
use crate::ops::quantize::{QuantizedMatmulAttributes, WeightZero};
use crate::ops::{
    Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::DType;

/// `webgpu::quantized_matmul::each`
pub(super) static EACH: Weights = Weights { name: "webgpu::quantized_matmul::each", together: false };
/// `webgpu::quantized_matmul::workgroup`
pub(super) static WORKGROUP: Weights =
    Weights { name: "webgpu::quantized_matmul::workgroup", together: true };

/// An output and a few rows for each invocation, or for each workgroup.
pub(super) struct Weights {
    name: &'static str,
    together: bool,
}

/// Invocations of the shader that rounds.
const LINE: u32 = 64;

/// Adds up what the invocations of a workgroup have, and leaves it in the first one.
const TREE: &str = "
part[lane] = ACC;
workgroupBarrier();
for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] += part[lane + half]; }
    workgroupBarrier();
}
ACC = part[0];
workgroupBarrier();
";

/// Sizes of a workload.
struct Product {
    attributes: QuantizedMatmulAttributes,
    m: usize,
    n: usize,
    k: usize,
    groups: usize,
    blocks: usize,
    dtype: DType,
}

impl Product {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::QuantizedMatmul(attributes) => *attributes,
            other => unreachable!("the registry gives products with quantised weights only, not {other}"),
        };
        let inputs = workload.inputs();
        let (x, y) = (&inputs[0], &workload.outputs()[0]);
        Self {
            attributes,
            m: x.shape[0],
            n: y.shape[1],
            k: x.shape[1],
            groups: inputs[1].shape[1],
            blocks: inputs[2].shape[1],
            dtype: x.dtype,
        }
    }

    fn numbers(&self) -> Numbers {
        Numbers::default()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("groups", self.groups)
            .with("blocks", self.blocks)
            .with("block", self.attributes.block)
            .with("total", self.m * self.n)
    }

    fn is_short(&self) -> bool {
        self.dtype == DType::BF16
    }

    /// Whether rows can be read four neighbours at a time.
    fn by_four(&self) -> bool {
        !self.is_short() && self.k.is_multiple_of(4)
    }

    /// The function `row_at` of four neighbours of a row; zeros beyond its end.
    fn rows(&self) -> String {
        let body = if self.by_four() {
            "if (p >= s.k) { return vec4<f32>(0.0); }\nreturn x[(row * s.k + p) / 4u];".into()
        } else {
            let one = if self.is_short() {
                "bitcast<f32>(extractBits(x[at / 2u], at % 2u * 16u, 16u) << 16u)"
            } else {
                "x[at]"
            };
            format!(
                "var four = vec4<f32>(0.0);\nfor (var i = 0u; i < 4u; i++) {{\nlet at = row * s.k + p + i;\n\
                 if (p + i < s.k) {{ four[i] = {one}; }}\n}}\nreturn four;"
            )
        };
        format!("fn row_at(row: u32, p: u32) -> vec4<f32> {{\n{body}\n}}\n")
    }

    /// The functions `scale_at` and `zero_at` of a block of output `j`.
    fn blocks(&self) -> String {
        let at = format!("(j / {PANEL}u * s.blocks + block) * {PANEL}u + j % {PANEL}u");
        let zero = match self.attributes.zero {
            WeightZero::Lowest => "0.0".into(),
            WeightZero::Middle => format!("{}.0", 1 << (self.attributes.bits - 1)),
            WeightZero::Each => format!("zero[{at}]"),
        };
        format!(
            "fn scale_at(j: u32, block: u32) -> f32 {{ return scale[{at}]; }}\n\
             fn zero_at(j: u32, block: u32) -> f32 {{ return {zero}; }}\n\
             fn block_of(p: u32) -> u32 {{ return min(p / max(s.block, 1u), s.blocks - 1u); }}\n"
        )
    }

    /// The weights `w0` and `w1` of eight neighbours from `p` on, and the factor of their products.
    fn unpack(&self) -> String {
        let bits = self.attributes.bits;
        let mask = (1u64 << bits) - 1;
        let raw = |word: &str| format!("vec4<f32>(({word} >> vec4<u32>(t * {bits}u)) & vec4<u32>({mask}u))");
        let (low, high) = (raw("low"), raw("high"));
        if self.attributes.block == 0 {
            return format!("let w0 = {low} - no_zero;\nlet w1 = {high} - no_zero;\nlet factor = 1.0;\n");
        }
        if self.attributes.block.is_multiple_of(LANES) {
            return format!(
                "let block = block_of(p);\nlet z = zero_at(j, block);\nlet w0 = {low} - z;\nlet w1 = {high} - z;\n\
                 let factor = scale_at(j, block);\n"
            );
        }
        let mut text = format!("var w0 = {low};\nvar w1 = {high};\n");
        for i in 0..LANES {
            let (word, part) = (i / 4, i % 4);
            let _ = writeln!(
                text,
                "{{ let block = block_of(p + {i}u); w{word}[{part}] = (w{word}[{part}] - zero_at(j, block)) * scale_at(j, block); }}"
            );
        }
        text.push_str("let factor = 1.0;\n");
        text
    }
}

impl Weights {
    fn body(&self, product: &Product, x: u32, rows: u32) -> String {
        let (bits, size) = (product.attributes.bits, group(product.attributes.bits));
        let places = 32 / bits;
        let (index, first, step) = if self.together {
            ("line".into(), "lane", format!("{x}u"))
        } else {
            (format!("line * {x}u + lane"), "0u", "1u".into())
        };
        let mut text = format!(
            "{GROUP}let index = {index};\nlet j = index % s.n; let row = index / s.n * {rows}u;\n\
             if (row >= s.m) {{ return; }}\nlet no_zero = zero_at(j, 0u);\n"
        );
        for r in 0..rows {
            let _ = writeln!(text, "var acc{r} = 0.0; let row{r} = min(row + {r}u, s.m - 1u);");
        }
        let _ = writeln!(
            text,
            "for (var g = {first}; g < s.groups; g += {step}) {{\n\
             let at = ((j / {PANEL}u * s.groups + g) * {PANEL}u + j % {PANEL}u) * 2u;\n\
             let low = words[at]; let high = words[at + 1u];\n\
             for (var t = 0u; t < {places}u; t++) {{\nlet p = g * {size}u + t * {LANES}u;\n{}",
            product.unpack()
        );
        for r in 0..rows {
            let _ = writeln!(
                text,
                "acc{r} += factor * (dot(row_at(row{r}, p), w0) + dot(row_at(row{r}, p + 4u), w1));"
            );
        }
        text.push_str("}\n}\n");
        for r in 0..rows {
            if self.together {
                text.push_str(&TREE.replace("ACC", &format!("acc{r}")).replace("WX", &format!("{x}u")));
            }
            let scale = if product.attributes.block == 0 { " * scale_at(j, 0u)" } else { "" };
            // Without inputs there are no scales either.
            let once = if self.together { " && lane == 0u" } else { "" };
            let _ = writeln!(
                text,
                "if (row + {r}u < s.m{once}) {{ y[(row + {r}u) * s.n + j] = select(0.0, acc{r}{scale}, s.k > 0u); }}"
            );
        }
        text
    }

    fn shader(&self, product: &Product, x: u32, rows: u32, numbers: &Numbers) -> Shader {
        let input = match (product.is_short(), product.by_four()) {
            (true, _) => "u32",
            (_, true) => "vec4<f32>",
            _ => "f32",
        };
        let mut wgsl = Wgsl::new(self.name, [x, 1, 1])
            .numbers(numbers)
            .read("x", input)
            .read("words", "vec4<u32>")
            .read("scale", "f32");
        if product.attributes.zero == WeightZero::Each {
            wgsl = wgsl.read("zero", "f32");
        }
        if self.together {
            wgsl = wgsl.shared("part", "f32", 4, x);
        }
        wgsl.write("y", "f32").with(product.rows()).with(product.blocks()).main(self.body(product, x, rows))
    }

    /// Two results of 16 bits to a word.
    fn shorten(&self, numbers: &Numbers) -> Shader {
        Wgsl::new(format!("{}: shorten", self.name), [LINE, 1, 1])
            .numbers(numbers)
            .read("x", "f32")
            .write("y", "u32")
            .with(NUMBERS)
            .main(format!(
                "{GROUP}let index = line * {LINE}u + lane;\nif (index * 2u >= s.total) {{ return; }}\n\
                 var word = to_short(x[index * 2u]);\n\
                 if (index * 2u + 1u < s.total) {{ word |= to_short(x[index * 2u + 1u]) << 16u; }}\ny[index] = word;"
            ))
    }
}

impl WebGpuKernel for Weights {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::QuantizedMatmul
    }

    fn variant(&self) -> Variant {
        if self.together { Variant::Tiled } else { Variant::Vectorised }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_weights.rs", "webgpu_numbers.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let product = Product::of(workload);
        let most = limits.storage_binding.min(limits.buffer);
        let waiting = if product.is_short() { 4 * (product.m * product.n) as u64 } else { 0 };
        let groups = if self.together { product.groups / 32 + 16 } else { product.groups };
        Checks::layouts(workload, limits)
            .bindings(workload.operands().len())
            .needs(workload.operands().iter().all(TensorDesc::is_contiguous), "operands without gaps")
            .needs(waiting <= most, "results that a binding takes in f32")
            .needs(fits(limits, [64, 1, 1], 64 * 4), "workgroups of 64")
            .turns(groups * (1 + 32 / product.attributes.bits as usize))
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let rows: &[u32] = if Product::of(workload).m == 1 { &[1] } else { &[4, 1] };
        let sizes: &[u32] = if self.together { &[32, 64] } else { &[64, 16] };
        ParameterSpace::single().axis(Knob::TileM, rows).axis(Knob::WorkgroupX, sizes).constrained(|p| {
            let x = p.get(Knob::WorkgroupX).unwrap_or(64);
            fits(limits, [x, 1, 1], 4 * x)
        })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let product = Product::of(workload);
        let products = (product.m * product.n * product.k) as f64;
        let rows = parameters.get(Knob::TileM).unwrap_or(1) as usize;
        // A multiplication and an addition each; a shift, a mask, a conversion and a subtraction of a weight for every tile of rows.
        let unpacking = 4.0 * (product.m.div_ceil(rows) * product.n * product.k) as f64;
        WebGpuCost { operations: 2.0 * products + unpacking, bytes: workload.bytes() as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.m * product.n == 0 {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let rows = parameters.get(Knob::TileM).unwrap_or(1);
        let numbers = product.numbers();
        let inputs = workload.inputs().len();
        let mut places: Vec<_> = (0..inputs).map(Place::Operand).collect();
        let output = Place::Operand(inputs);
        places.push(if product.is_short() { Place::Scratch(0) } else { output });
        let tiles = product.m.div_ceil(rows as usize) * product.n;
        let groups = if self.together { tiles } else { tiles.div_ceil(x as usize) };
        let mut plan = Plan {
            shaders: vec![self.shader(&product, x, rows, &numbers)],
            scratch: vec![],
            dispatches: vec![dispatch(0, &places, &numbers, line_of_groups(groups))],
        };
        if product.is_short() {
            plan.scratch.push(4 * (product.m * product.n) as u64);
            let words = (product.m * product.n).div_ceil(2);
            let groups = line_of_groups(words.div_ceil(LINE as usize));
            plan.dispatches.push(dispatch(1, &[Place::Scratch(0), output], &numbers, groups));
            plan.shaders.push(self.shorten(&numbers));
        }
        plan
    }
}

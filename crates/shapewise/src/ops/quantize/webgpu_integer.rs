//! Products of small integers: both operands become words of four neighbours along the depth, signed, then tiles of dot products.
//!
//! With packed numbers a′ = a − o of offset o, Σ(a − za)(b − zb) = Σa′b′ − za′·Σb′ − zb′·Σa′ + k·za′·zb′ where z′ = z − o.

use std::fmt::Write;

use super::NUMBERS;
use super::integer_problem::{Product, Side};
use crate::backends::webgpu::axes;
use crate::backends::webgpu::wgsl::{Checks, GROUP, Numbers, Wgsl, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant, Workload};
use crate::tensor::DType;

/// `webgpu::integer_matmul::dot`
pub(super) static DOT: Tiles = Tiles { name: "webgpu::integer_matmul::dot", packed: true };
/// `webgpu::integer_matmul::unpacked`
pub(super) static UNPACKED: Tiles = Tiles { name: "webgpu::integer_matmul::unpacked", packed: false };

/// Tiles of results, by the dot product of packed words or by products of their parts.
pub(super) struct Tiles {
    name: &'static str,
    packed: bool,
}

/// `Word` is what products are taken of, `open` makes it from four packed bytes.
const BY_DOT: &str = "alias Word = u32;
fn open(word: u32) -> Word { return word; }
fn times(a: Word, b: Word) -> i32 { return dot4I8Packed(a, b); }";
const BY_PARTS: &str = "alias Word = vec4<i32>;
fn open(word: u32) -> Word { return bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u); }
fn times(a: Word, b: Word) -> i32 { return dot(a, b); }";

/// Invocations of the shaders that prepare and finish.
const LINE: u32 = 64;

/// Scratch memory: both packed operands, the sums of their lines, sums that wait to be requantised.
const PACKED: [usize; 2] = [0, 1];
const SUMS: [usize; 2] = [2, 3];
const RESULTS: usize = 4;

impl Tiles {
    fn words(&self) -> &'static str {
        if self.packed { BY_DOT } else { BY_PARTS }
    }

    /// Packs an operand.
    fn pack(&self, side: &Side, numbers: &Numbers) -> Shader {
        Wgsl::new(format!("{}: pack", self.name), [LINE, 1, 1])
            .read("x", "u32")
            .write("packed", "vec4<u32>")
            .numbers(numbers)
            .with(axes::places("matrix", &side.matrices))
            .with(side.number())
            .main(format!(
                "{GROUP}let index = line * {LINE}u + lane;\nif (index >= s.total) {{ return; }}\n\
                 let quad = index % s.quads; let word = index / s.quads % s.words;\n\
                 let start = matrix_in(index / s.quads / s.words);\nvar four = vec4<u32>(0u);\n\
                 for (var l = 0u; l < 4u; l++) {{\nvar bytes = 0u;\nfor (var i = 0u; i < 4u; i++) {{\n\
                 let row = quad * 4u + l; let p = word * 4u + i;\n\
                 if (row < s.lines && p < s.k) {{ bytes |= number(start, row, p) << (8u * i); }}\n}}\n\
                 four[l] = bytes;\n}}\npacked[index] = four;"
            ))
    }

    /// Adds up the packed numbers of every line.
    fn sums(&self, numbers: &Numbers) -> Shader {
        Wgsl::new(format!("{}: sums", self.name), [LINE, 1, 1])
            .read("packed", "vec4<u32>")
            .write("sums", "vec4<i32>")
            .numbers(numbers)
            .with(self.words())
            .main(format!(
                "{GROUP}let index = line * {LINE}u + lane;\nif (index >= s.total) {{ return; }}\n\
                 let base = index / s.quads * s.quads * s.words + index % s.quads;\n\
                 let ones = open(0x01010101u);\nvar sum = vec4<i32>(0);\n\
                 for (var p = 0u; p < s.words; p++) {{\nlet four = packed[base + p * s.quads];\n\
                 sum += vec4<i32>(times(open(four.x), ones), times(open(four.y), ones), times(open(four.z), ones), times(open(four.w), ones));\n}}\n\
                 sums[index] = sum;"
            ))
    }

    /// A tile of results for every invocation.
    fn tiles(&self, product: &Product, workload: &Workload, shape: Shape, numbers: &Numbers) -> Shader {
        let mut wgsl = Wgsl::new(self.name, [shape.x, shape.y, 1])
            .numbers(numbers)
            .read("a", "vec4<u32>")
            .read("b", "vec4<u32>");
        for (name, _) in Self::extras(product) {
            let element = if name.ends_with("sums") { "vec4<i32>" } else { "i32" };
            wgsl = wgsl.read(name, element);
        }
        wgsl.write("y", "i32")
            .with(self.words())
            .with(axes::places("result", &product.results))
            .with(put(product, workload))
            .main(shape.body())
    }

    /// What a tile reads beside the packed operands.
    fn extras(product: &Product) -> Vec<(&'static str, Place)> {
        let [a, b] = &product.sides;
        let mut extras = Vec::new();
        extras.extend(b.moved().then_some(("a_sums", Place::Scratch(SUMS[0]))));
        extras.extend(a.moved().then_some(("b_sums", Place::Scratch(SUMS[1]))));
        extras.extend(a.zero.map(|operand| ("a_zero", Place::Operand(operand))));
        extras.extend(b.zero.map(|operand| ("b_zero", Place::Operand(operand))));
        if !product.attributes.requantized {
            extras.extend(product.bias.map(|operand| ("bias", Place::Operand(operand))));
        }
        extras
    }

    /// From sums to bytes: bias, new scale, zero point, four to a word.
    fn finish(&self, product: &Product, workload: &Workload, numbers: &Numbers) -> Shader {
        let mut wgsl =
            Wgsl::new(format!("{}: finish", self.name), [LINE, 1, 1]).numbers(numbers).read("sums", "i32");
        if product.bias.is_some() {
            wgsl = wgsl.read("bias", "i32");
        }
        let scale = |i: usize, index: &str| {
            let name = ["a_scale", "b_scale", "y_scale", "y_zero"][i];
            Product::entry(workload, product.scales + i, name, index)
        };
        let (low, high) = if workload.outputs()[0].dtype == DType::I8 { (-128, 127) } else { (0, 255) };
        let value = format!(
            "nearest(real_of(sums[at]{}) * divide({} * {}, {}), {}, {low}, {high})",
            product.bias(workload),
            scale(0, "i"),
            scale(1, "j"),
            scale(2, "0u"),
            scale(3, "0u"),
        );
        wgsl.read("a_scale", "f32")
            .read("b_scale", "f32")
            .read("y_scale", "f32")
            .read("y_zero", "i32")
            .write("y", "u32")
            .with(NUMBERS)
            .main(format!(
                "{GROUP}let index = line * {LINE}u + lane;\nif (index * 4u >= s.elements) {{ return; }}\nvar word = 0u;\n\
                 for (var l = 0u; l < 4u && index * 4u + l < s.elements; l++) {{\nlet at = index * 4u + l;\n\
                 let j = at % s.n; let i = at / s.n % s.m;\nword |= (u32({value}) & 255u) << (8u * l);\n}}\ny[index] = word;"
            ))
    }
}

/// The function `put` of four neighbouring sums.
fn put(product: &Product, workload: &Workload) -> String {
    let [a, b] = &product.sides;
    let (za, zb) = (product.zero(workload, 0, "i"), product.zero(workload, 1, "j"));
    let mut value = String::from("c[l]");
    if a.moved() {
        let _ = write!(value, " - {za} * b_sums[matrix * s.b_matrix * s.b_quads + quad][l]");
    }
    if b.moved() {
        let _ = write!(value, " - {zb} * a_sums[matrix * s.a_matrix * s.a_quads + i / 4u][i % 4u]");
    }
    if a.moved() && b.moved() {
        let _ = write!(value, " + i32(s.k) * {za} * {zb}");
    }
    let from = if product.attributes.requantized {
        "matrix * s.m * s.n"
    } else {
        value.push_str(&product.bias(workload));
        "result_in(matrix)"
    };
    format!(
        "fn put(matrix: u32, i: u32, quad: u32, c: vec4<i32>) {{\nif (i >= s.m) {{ return; }}\n\
         for (var l = 0u; l < 4u; l++) {{\nlet j = quad * 4u + l;\n\
         if (j < s.n) {{ y[{from} + i * s.y_row + j * s.y_column] = {value}; }}\n}}\n}}\n"
    )
}

/// Invocations of a workgroup, and the results of each.
#[derive(Clone, Copy)]
struct Shape {
    x: u32,
    y: u32,
    rows: u32,
    columns: u32,
}

impl Shape {
    fn of(parameters: &Parameters) -> Self {
        let get = |knob, otherwise| parameters.get(knob).unwrap_or(otherwise);
        Self {
            x: get(Knob::WorkgroupX, 8),
            y: get(Knob::WorkgroupY, 8),
            rows: get(Knob::TileM, 4),
            columns: get(Knob::TileN, 4),
        }
    }

    /// Workgroups along the columns and along the rows.
    fn groups(self, product: &Product) -> [usize; 2] {
        let across = (self.x * self.columns) as usize;
        let down = (self.y * self.rows) as usize;
        [product.n.div_ceil(across), product.m.div_ceil(down)]
    }

    fn body(self) -> String {
        let (down, across) = (self.rows.div_ceil(4), self.columns / 4);
        let (x, y) = (self.x, self.y);
        let mut text = format!(
            "{GROUP}let matrix = line / s.gx / s.gy;\nif (matrix >= s.matrices) {{ return; }}\n\
             let column = (line % s.gx * {x}u + local.x) * {across}u;\n\
             let row = (line / s.gx % s.gy * {y}u + local.y) * {down}u;\n\
             let a_at = matrix * s.a_matrix * s.words * s.a_quads;\n\
             let b_at = matrix * s.b_matrix * s.words * s.b_quads;\n"
        );
        let tiles = (0..self.rows).flat_map(|r| (0..across).map(move |q| (r, q)));
        for (r, q) in tiles.clone() {
            let _ = writeln!(text, "var c{r}_{q} = vec4<i32>(0);");
        }
        text.push_str("for (var p = 0u; p < s.words; p++) {\n");
        for (name, count, first) in [("a", down, "row"), ("b", across, "column")] {
            for i in 0..count {
                let _ = writeln!(
                    text,
                    "let {name}{i} = {name}[{name}_at + p * s.{name}_quads + min({first} + {i}u, s.{name}_quads - 1u)];"
                );
            }
        }
        for r in 0..self.rows {
            let _ = writeln!(text, "let left{r} = open(a{}[{}]);", r / 4, r % 4);
        }
        for j in 0..self.columns {
            let _ = writeln!(text, "let right{j} = open(b{}[{}]);", j / 4, j % 4);
        }
        for (r, q) in tiles.clone() {
            let parts: Vec<_> = (0..4).map(|l| format!("times(left{r}, right{})", 4 * q + l)).collect();
            let _ = writeln!(text, "c{r}_{q} += vec4<i32>({});", parts.join(", "));
        }
        text.push_str("}\n");
        for (r, q) in tiles {
            let _ = writeln!(text, "put(matrix, row * 4u + {r}u, column + {q}u, c{r}_{q});");
        }
        text
    }
}

impl WebGpuKernel for Tiles {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::IntegerMatmul
    }

    fn variant(&self) -> Variant {
        if self.packed { Variant::Vectorised } else { Variant::Tiled }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_integer.rs", "webgpu_integer_problem.rs", "webgpu_numbers.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let (product, y) = (Product::of(workload), &workload.outputs()[0]);
        let most = limits.storage_binding.min(limits.buffer);
        let finishing = 6 + usize::from(product.bias.is_some());
        let vectors = workload.inputs()[2..].iter().all(TensorDesc::is_contiguous);
        Checks::layouts(workload, limits)
            .bindings((3 + Self::extras(&product).len()).max(finishing))
            .needs(y.dtype.size() > 1 || y.is_contiguous(), "an output of bytes without gaps")
            .needs(vectors, "scales, zero points and bias without gaps")
            .needs(
                product.scratch().iter().all(|&bytes| bytes <= most),
                "packed operands that a binding takes",
            )
            .needs(fits(limits, [LINE, 1, 1], 0), "workgroups of 64")
            .turns(product.k.div_ceil(4))
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let rows: &[u32] = match Product::of(workload).m {
            1 => &[1],
            2..=4 => &[4],
            _ => &[8, 4],
        };
        ParameterSpace::single()
            .axis(Knob::TileM, rows)
            .axis(Knob::TileN, &[8, 4])
            .axis(Knob::WorkgroupX, &[8, 16])
            .axis(Knob::WorkgroupY, &[8, 1])
            .constrained(|p| {
                let shape = Shape::of(p);
                // Rows that nobody has are work all the same.
                (rows.len() > 1 || shape.y == 1) && fits(limits, [shape.x, shape.y, 1], 0)
            })
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let product = Product::of(workload);
        // A multiplication and an addition for each number; unpacked ones are shifted twice as well, once for each tile.
        let each = if self.packed { 2.0 } else { 2.5 };
        let packed: u64 = product.scratch()[..2].iter().sum();
        let results = product.elements() as f64;
        let waiting = if product.attributes.requantized { 8.0 * results } else { 0.0 };
        WebGpuCost {
            operations: each * results * product.k as f64,
            bytes: workload.bytes() as f64 + 2.0 * packed as f64 + waiting,
        }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.elements() == 0 {
            return Plan::default();
        }
        let mut plan = Plan { scratch: product.scratch(), ..Plan::default() };
        let mut add = |shader: Shader, places: &[Place], numbers: &Numbers, groups: usize| {
            if groups > 0 {
                plan.dispatches.push(dispatch(plan.shaders.len(), places, numbers, line_of_groups(groups)));
                plan.shaders.push(shader);
            }
        };
        let in_lines = |invocations: usize| invocations.div_ceil(LINE as usize);
        for (i, side) in product.sides.iter().enumerate() {
            let numbers = side.numbers(product.k);
            let total = side.matrices() * product.k.div_ceil(4) * side.quads();
            let packed = Place::Scratch(PACKED[i]);
            add(self.pack(side, &numbers), &[Place::Operand(i), packed], &numbers, in_lines(total));
            if product.sides[1 - i].moved() {
                let lines = side.matrices() * side.quads();
                let numbers = Numbers::default()
                    .with("total", lines)
                    .with("words", product.k.div_ceil(4))
                    .with("quads", side.quads());
                add(self.sums(&numbers), &[packed, Place::Scratch(SUMS[i])], &numbers, in_lines(lines));
            }
        }
        let shape = Shape::of(parameters);
        let [gx, gy] = shape.groups(&product);
        let numbers = product.numbers(&workload.outputs()[0], [gx, gy]);
        let output = Place::Operand(workload.inputs().len());
        let requantized = product.attributes.requantized;
        let mut places = PACKED.map(Place::Scratch).to_vec();
        places.extend(Self::extras(&product).into_iter().map(|(_, place)| place));
        places.push(if requantized { Place::Scratch(RESULTS) } else { output });
        let groups = gx * gy * axes::count(&product.results);
        add(self.tiles(&product, workload, shape, &numbers), &places, &numbers, groups);
        if requantized {
            let elements = product.elements();
            let numbers =
                Numbers::default().with("elements", elements).with("m", product.m).with("n", product.n);
            let mut places = vec![Place::Scratch(RESULTS)];
            places.extend(product.bias.map(Place::Operand));
            places.extend((0..4).map(|i| Place::Operand(product.scales + i)));
            places.push(output);
            add(self.finish(&product, workload, &numbers), &places, &numbers, in_lines(elements.div_ceil(4)));
        }
        plan
    }
}

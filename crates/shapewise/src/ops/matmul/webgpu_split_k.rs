//! The sum cut into pieces that different workgroups add up, for products with few results.

use super::registers::{Tile, place, space};
use super::{Product, checks};
use crate::backends::webgpu::wgsl::{GROUP, MOST_TURNS, Numbers, Wgsl, dispatch, element, line_of_groups};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::matmul::split_k`
pub(super) struct SplitK;

/// Invocations of a workgroup that adds the pieces up: enough for the widest subgroup that is common.
const FINISH: u32 = 64;

/// Into how many pieces sums are cut.
const SPLITS: &[u32] = &[4, 16, 64];

/// Whether the pieces of all results fit one buffer, and their loops end before drivers end them.
fn possible(product: &Product, pieces: usize, limits: &WebGpuLimits) -> bool {
    let bytes = 4 * (product.m * product.n * product.count() * pieces) as u64;
    bytes <= limits.storage_binding.min(limits.buffer) && product.k / pieces <= MOST_TURNS
}

/// Adds up the pieces of each result.
const FINISH_BODY: &str = "
let index = line * 64u + lane;
if (index >= s.m * s.n * s.count) { return; }
let column = index % s.n;
let row = index / s.n % s.m;
var rest = index / s.n / s.m;
let one = s.m * s.n;
let first = rest * s.pieces * one + row * s.n + column;
var sum = 0.0;
for (var piece = 0u; piece < s.pieces; piece++) { sum += parts[first + piece * one]; }
";

fn pieces(parameters: &Parameters) -> usize {
    parameters.get(Knob::Split).unwrap_or(2) as usize
}

impl SplitK {
    /// The sums of each piece.
    fn partial(&self, product: &Product, tile: &Tile, numbers: &Numbers) -> Shader {
        let body = format!(
            "{GROUP}{}let piece = rest % s.pieces;\nrest /= s.pieces;\nif (rest >= s.count) {{ return; }}\nlet part = (rest * s.pieces + piece) * s.m * s.n;\n\
             {}{}let start = min(piece * s.piece, s.k); let until = min(start + s.piece, s.k);\n{}{}",
            place(tile),
            product.starts(),
            tile.prologue(),
            tile.steps(),
            tile.epilogue(|row, column, sum| match tile.vector {
                1 => format!("parts[part + {row} * s.n + {column}] = {sum};"),
                _ => format!("parts[(part + {row} * s.n + {column}) >> 2u] = {sum};"),
            }),
        );
        let (width, element) = (tile.vector, element(product.dtype));
        Wgsl::new(format!("{}: pieces", self.name()), [tile.x, tile.y, 1])
            .read("a", &super::vector(element, width))
            .read("b", &super::vector(element, tile.loads))
            .write("parts", &super::vector("f32", width))
            .numbers(numbers)
            .with(tile.functions())
            .main(body)
    }

    /// The results from the pieces.
    fn finish(&self, product: &Product, numbers: &Numbers) -> Shader {
        let name = element(product.dtype);
        let wgsl = Wgsl::new(format!("{}: sums", self.name()), [FINISH, 1, 1]).read("parts", "f32");
        let wgsl = if product.bias.is_some() { wgsl.read("bias", name) } else { wgsl };
        let store = format!("c[c_at + row * s.c_rs + column * s.c_cs] = {name}(finish(sum, column));");
        wgsl.write("c", name)
            .numbers(numbers)
            .with(product.finish())
            .main(format!("{GROUP}{FINISH_BODY}{}{store}", product.starts()))
    }
}

impl WebGpuKernel for SplitK {
    fn name(&self) -> &'static str {
        "webgpu::matmul::split_k"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn variant(&self) -> Variant {
        Variant::Parallel
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_split_k.rs", "webgpu_registers.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let product = Product::of(workload);
        let some = SPLITS.iter().any(|&split| possible(&product, split as usize, limits));
        checks(workload, limits)
            .needs(product.k >= 64, "at least 64 steps to cut")
            .needs(some, "pieces that fit one buffer, of at most 65000 steps")
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let product = Product::of(workload);
        space(&product, limits)
            .axis(Knob::Split, SPLITS)
            .constrained(|p| possible(&product, pieces(p), limits))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let product = Product::of(workload);
        let [rows, columns] = Tile::of(parameters).block();
        let cost = product.cost(rows, columns);
        let parts = (product.m * product.n * product.count() * pieces(parameters)) as f64;
        WebGpuCost { operations: cost.operations + parts, bytes: cost.bytes + 8.0 * parts }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.is_empty() {
            return Plan::default();
        }
        let (tile, pieces) = (Tile::of(parameters), pieces(parameters));
        // Whole vectors: the next piece starts at a multiple of four.
        let piece = product.k.div_ceil(pieces).next_multiple_of(4);
        let numbers =
            product.numbers().with("count", product.count()).with("pieces", pieces).with("piece", piece);
        let results = product.m * product.n * product.count();
        let parts = Place::Scratch(0);
        let first = [Place::Operand(0), Place::Operand(1), parts];
        let mut second = vec![parts];
        second.extend((2..workload.operands().len()).map(Place::Operand));
        let groups = tile.blocks(&product) * product.count() * pieces;
        Plan {
            shaders: vec![self.partial(&product, &tile, &numbers), self.finish(&product, &numbers)],
            scratch: vec![(results * pieces * 4) as u64],
            dispatches: vec![
                dispatch(0, &first, &numbers, line_of_groups(groups)),
                dispatch(1, &second, &numbers, line_of_groups(results.div_ceil(FINISH as usize))),
            ],
        }
    }
}

//! A tile of results in the registers of each invocation, operands straight from memory.

use std::fmt::Write;

use super::{Product, checks};
use crate::backends::webgpu::wgsl::{GROUP, element, fits, most_held};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::matmul::registers`
pub(super) struct Registers;

/// How results are shared out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Invocations of a workgroup along columns and rows.
    pub x: u32,
    pub y: u32,
    /// Rows and columns of an invocation.
    pub rows: u32,
    pub columns: u32,
    /// Neighbouring columns whose sums are one vector, 1 or 4.
    pub vector: u32,
    /// Neighbours that one load of the right operand takes: as many, or 8.
    pub loads: u32,
}

impl Tile {
    pub fn of(parameters: &Parameters) -> Self {
        let get = |knob, otherwise| parameters.get(knob).unwrap_or(otherwise);
        let loads = get(Knob::Vector, 1);
        Self {
            x: get(Knob::WorkgroupX, 8),
            y: get(Knob::WorkgroupY, 1),
            rows: get(Knob::TileM, 8),
            columns: get(Knob::TileN, 8),
            vector: loads.min(4),
            loads,
        }
    }

    /// Rows and columns of a workgroup.
    pub fn block(&self) -> [usize; 2] {
        [(self.y * self.rows) as usize, (self.x * self.columns) as usize]
    }

    /// Workgroups for one product.
    pub fn blocks(&self, product: &Product) -> usize {
        let [rows, columns] = self.block();
        product.m.div_ceil(rows) * product.n.div_ceil(columns)
    }

    /// Vectors of columns of an invocation.
    pub fn vectors(&self) -> u32 {
        self.columns / self.vector
    }

    /// The column of vector `j` after an invocation's first one: neighbouring invocations load neighbours.
    fn column(&self, j: u32) -> u32 {
        let place = j * self.vector;
        place / self.loads * self.loads * self.x + place % self.loads
    }

    /// The functions that [`Self::steps`] calls.
    pub fn functions(&self) -> &'static str {
        if self.loads == 8 {
            "fn two(x: u64) -> vec2<f32> { return bitcast<vec2<f32>>(vec2<u32>(u32(x), u32(x >> 32u))); }"
        } else {
            ""
        }
    }

    /// Rows and columns of this invocation and where its operands start; sums at zero. Places beyond the end are read as the last.
    pub fn prologue(&self) -> String {
        let Self { x, y, rows, columns, vector, loads } = *self;
        let mut text = format!(
            "let first_row = block_m * {}u + local.y * {rows}u;\nlet first_column = block_n * {}u + local.x * {loads}u;\n",
            y * rows,
            x * columns
        );
        for r in 0..rows {
            let _ = writeln!(text, "let a{r} = a_at + min(first_row + {r}u, s.m - 1u) * s.a_rs;");
        }
        for j in 0..self.vectors() {
            let at = self.column(j);
            let _ = writeln!(text, "let b{j} = b_at + min(first_column + {at}u, s.n - {vector}u) * s.b_cs;");
        }
        let zero = if vector == 4 { "vec4<f32>()" } else { "0.0" };
        for r in 0..rows {
            for j in 0..self.vectors() {
                let _ = writeln!(text, "var c{r}_{j} = {zero};");
            }
        }
        text
    }

    /// The loop over steps `start` to `until`.
    pub fn steps(&self) -> String {
        if self.vector == 4 {
            let body = self.four_steps();
            return format!("for (var k = start; k < until; k += 4u) {{\n{body}}}\n");
        }
        format!("for (var k = start; k < until; k++) {{\n{}}}\n", self.step())
    }

    fn step(&self) -> String {
        let mut text = String::from("let ka = k * s.a_cs;\nlet kb = k * s.b_rs;\n");
        for j in 0..self.vectors() {
            let _ = writeln!(text, "let y{j} = f32(b[b{j} + kb]);");
        }
        for r in 0..self.rows {
            let _ = writeln!(text, "let x{r} = f32(a[a{r} + ka]);");
            for j in 0..self.vectors() {
                let _ = writeln!(text, "c{r}_{j} += x{r} * y{j};");
            }
        }
        text
    }

    fn four_steps(&self) -> String {
        let mut text = String::new();
        for r in 0..self.rows {
            let _ = writeln!(text, "let x{r} = vec4<f32>(a[(a{r} + k) >> 2u]);");
        }
        for (step, part) in ["x", "y", "z", "w"].into_iter().enumerate() {
            for j in 0..self.vectors() {
                let at = format!("(b{j} + (k + {step}u) * s.b_rs)");
                let _ = match (self.loads, j % 2) {
                    (8, 0) => writeln!(
                        text,
                        "let z{j}_{step} = b[{at} >> 3u];\nlet y{j}_{step} = vec4<f32>(two(z{j}_{step}.x), two(z{j}_{step}.y));"
                    ),
                    (8, _) => {
                        let z = format!("z{}_{step}", j - 1);
                        writeln!(text, "let y{j}_{step} = vec4<f32>(two({z}.z), two({z}.w));")
                    }
                    _ => writeln!(text, "let y{j}_{step} = vec4<f32>(b[{at} >> 2u]);"),
                };
                for r in 0..self.rows {
                    let _ = writeln!(text, "c{r}_{j} += x{r}.{part} * y{j}_{step};");
                }
            }
        }
        text
    }

    /// Each result through `write`, which gets its row, column and sum (a vector of `vector`).
    pub fn epilogue(&self, write: impl Fn(&str, &str, &str) -> String) -> String {
        let mut text = String::new();
        for j in 0..self.vectors() {
            let at = self.column(j);
            let _ = writeln!(text, "{{ let column = first_column + {at}u;\nif (column < s.n) {{");
            for r in 0..self.rows {
                let _ = writeln!(
                    text,
                    "{{ let row = first_row + {r}u; if (row < s.m) {{ {} }} }}",
                    write("row", "column", &format!("c{r}_{j}"))
                );
            }
            text.push_str("} }\n");
        }
        text
    }
}

/// Which block of which product a workgroup computes.
pub(super) fn place(tile: &Tile) -> String {
    let [rows, columns] = tile.block();
    format!(
        "let blocks_n = (s.n + {columns}u - 1u) / {columns}u;\nlet blocks_m = (s.m + {rows}u - 1u) / {rows}u;\n\
         let block_n = line % blocks_n;\nlet block_m = line / blocks_n % blocks_m;\nvar rest = line / blocks_n / blocks_m;\n"
    )
}

/// The points worth trying: large tiles for devices where loads are dear, small ones for those with few registers; a line of
/// rows where there are no more.
pub(super) fn space(product: &Product, limits: &WebGpuLimits) -> ParameterSpace {
    let rows: &[u32] = match product.m {
        1 => &[1],
        2..=4 => &[4],
        5..=8 => &[8, 4],
        _ => &[16, 8, 4],
    };
    let columns: &[u32] = if product.n == 1 { &[1] } else { &[16, 8, 4] };
    let vector: &[u32] = match (product.by_four(), product.by_eight() && limits.u64) {
        (_, true) => &[8, 4, 1],
        (true, false) => &[4, 1],
        _ => &[1],
    };
    ParameterSpace::single()
        .axis(Knob::TileM, rows)
        .axis(Knob::TileN, columns)
        .axis(Knob::WorkgroupX, &[8, 16])
        .axis(Knob::WorkgroupY, &[1, 8, 16])
        .axis(Knob::Vector, vector)
        .constrained(|p| {
            let tile = Tile::of(p);
            let square = tile.rows == tile.columns || product.m <= 8 || product.n == 1;
            let large = tile.rows * tile.columns > 64;
            let line = tile.y == 1 && tile.x == 8;
            let spread = tile.y == tile.x
                && !large
                && product.m > tile.rows as usize
                && product.n > tile.columns as usize;
            fits(limits, [tile.x, tile.y, 1], 0)
                && square
                && (line || spread)
                && tile.rows * tile.columns <= most_held(limits)
                && tile.columns >= tile.loads
        })
}

/// One result or a vector of them, finished and in the operands' type.
pub(super) fn store(product: &Product, vector: u32) -> impl Fn(&str, &str, &str) -> String {
    let name = element(product.dtype);
    move |row, column, sum| {
        if vector == 1 {
            return format!(
                "c[c_at + {row} * s.c_rs + {column} * s.c_cs] = {name}(finish({sum}, {column}));"
            );
        }
        let parts: Vec<_> = ["x", "y", "z", "w"]
            .iter()
            .enumerate()
            .map(|(i, part)| format!("finish({sum}.{part}, {column} + {i}u)"))
            .collect();
        format!(
            "c[(c_at + {row} * s.c_rs + {column}) >> 2u] = vec4<{name}>(vec4<f32>({}));",
            parts.join(", ")
        )
    }
}

impl WebGpuKernel for Registers {
    fn name(&self) -> &'static str {
        "webgpu::matmul::registers"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_registers.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        checks(workload, limits).turns(Product::of(workload).k).done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        space(&Product::of(workload), limits)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let [rows, columns] = Tile::of(parameters).block();
        Product::of(workload).cost(rows, columns)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let product = Product::of(workload);
        if product.is_empty() {
            return Plan::default();
        }
        let tile = Tile::of(parameters);
        let numbers = product.numbers().with("count", product.count());
        let body = format!(
            "{GROUP}{}if (rest >= s.count) {{ return; }}\n{}{}let start = 0u; let until = s.k;\n{}{}",
            place(&tile),
            product.starts(),
            tile.prologue(),
            tile.steps(),
            tile.epilogue(store(&product, tile.vector)),
        );
        let widths = [tile.vector, tile.loads, tile.vector];
        let shader = product.shader(self.name(), [tile.x, tile.y, 1], widths);
        let shader = shader.numbers(&numbers).with(tile.functions()).main(body);
        product.plan(shader, &numbers, tile.blocks(&product) * product.count())
    }
}

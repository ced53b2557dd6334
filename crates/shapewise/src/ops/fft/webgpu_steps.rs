//! The dispatches of a transform: into scratch memory, pass after pass between two halves of it, and out again.

use std::collections::HashMap;
use std::fmt::Write;

use super::butterfly::Butterfly;
use super::{FftKind, Geometry};
use crate::backends::webgpu::axes;
use crate::backends::webgpu::wgsl::{GROUP, Numbers, Wgsl, dispatch, line_of_groups};
use crate::backends::webgpu::{Dispatch, Place, Plan, Shader};
use crate::ops::Workload;
use crate::tensor::DType;

/// Roots of unity and products.
const ROOTS: &str = include_str!("webgpu_roots.wgsl");

/// Complex numbers in memory.
const C: &str = "vec2<f32>";

/// The number of an invocation.
const INDEX: &str = "let index = line * WX + lane;\n";

/// What a plan consists of so far.
pub(super) struct Steps {
    label: &'static str,
    /// Invocations of a workgroup.
    width: u32,
    inverse: bool,
    shaders: Vec<Shader>,
    known: HashMap<String, usize>,
    scratch: Vec<u64>,
    dispatches: Vec<Dispatch>,
    /// The scratch memory that holds the numbers, and the one that the next pass writes.
    now: usize,
    next: usize,
}

impl Steps {
    pub fn new(label: &'static str, width: u32, inverse: bool) -> Self {
        let (shaders, dispatches) = (Vec::new(), Vec::new());
        Self {
            label,
            width,
            inverse,
            shaders,
            known: HashMap::new(),
            scratch: vec![0, 0],
            dispatches,
            now: 0,
            next: 1,
        }
    }

    /// Whether the exponent's sign is positive.
    pub fn inverse(&self) -> bool {
        self.inverse
    }

    /// Everything, in order.
    pub fn plan(self) -> Plan {
        let scratch = self.scratch.into_iter().map(|bytes| bytes.max(8)).collect();
        Plan { shaders: self.shaders, scratch, dispatches: self.dispatches }
    }

    /// Room for so many complex numbers in a piece of scratch memory.
    fn reserve(&mut self, place: usize, numbers: usize) {
        self.scratch.resize(self.scratch.len().max(place + 1), 0);
        self.scratch[place] = self.scratch[place].max(8 * numbers as u64);
    }

    /// One dispatch for `count` invocations of a shader that is made once for each name.
    fn run(
        &mut self,
        name: &str,
        places: &[Place],
        numbers: &Numbers,
        count: usize,
        make: impl FnOnce(Wgsl) -> Shader,
    ) {
        let shader = if let Some(&known) = self.known.get(name) {
            known
        } else {
            let wgsl = Wgsl::new(format!("{}: {name}", self.label), [self.width, 1, 1])
                .numbers(numbers)
                .with(format!("const WX = {}u;\n{ROOTS}", self.width));
            self.shaders.push(make(wgsl));
            self.known.insert(name.into(), self.shaders.len() - 1);
            self.shaders.len() - 1
        };
        let groups = line_of_groups(count.div_ceil(self.width as usize));
        self.dispatches.push(dispatch(shader, places, numbers, groups));
    }

    /// The input as complex numbers without gaps; the half of a real signal's spectrum that is left out is put back.
    pub fn load(&mut self, g: &Geometry, workload: &Workload) {
        let real = workload.inputs()[0].dtype == DType::F32;
        let completed = g.attributes.kind == FftKind::RealInverse;
        let last = g.n.len() - 1;
        let mut body = format!(
            "{GROUP}{INDEX}if (index >= s.repeats * s.points) {{ return; }}\nvar rest = index % s.points;\n"
        );
        for i in (0..=last).rev() {
            let _ = writeln!(body, "let i{i} = rest % s.n{i}; rest /= s.n{i};");
        }
        let sum = |index: &dyn Fn(usize) -> String| -> String {
            let terms: Vec<_> = (0..=last).map(|i| format!("{} * s.in{i}", index(i))).collect();
            terms.join(" + ")
        };
        let _ = writeln!(
            body,
            "let base = batch_in(index / s.points);\nlet at = base + {};",
            sum(&|i| format!("i{i}"))
        );
        let value = if real { "vec2<f32>(x[at], 0.0)" } else { "x[at]" };
        if completed {
            // A real signal's spectrum is the conjugate of its mirror image; where both halves meet they are averaged, which
            // leaves out what real numbers cannot have.
            let mirror = sum(&|i| format!("((s.n{i} - i{i}) % s.n{i})"));
            let _ = writeln!(
                body,
                "let meets = i{last} == 0u || 2u * i{last} == s.n{last};\nlet beyond = i{last} >= s.from{last};\n\
                 let image = x[base + select({}, {mirror}, meets || beyond)];\nlet conjugate = vec2<f32>(image.x, -image.y);\n\
                 var value = conjugate;\nif (!beyond) {{ let own = x[at]; value = select(own, 0.5 * (own + conjugate), meets); }}\nto[index] = value;",
                sum(&|_| "0u".into())
            );
        } else {
            let _ = writeln!(body, "to[index] = {value};");
        }
        let numbers = g.numbers();
        let count = g.repeats() * g.points();
        self.reserve(self.now, count);
        let places = [Place::Operand(0), Place::Scratch(self.now)];
        let functions = axes::places("batch", &g.batch);
        self.run("load", &places, &numbers, count, |wgsl| {
            wgsl.read("x", if real { "f32" } else { C }).write("to", C).with(functions).main(body)
        });
    }

    /// The output, scaled.
    pub fn store(&mut self, g: &Geometry, workload: &Workload) {
        let real = workload.outputs()[0].dtype == DType::F32;
        let last = g.n.len() - 1;
        let mut body = format!(
            "{GROUP}{INDEX}if (index >= s.repeats * s.points) {{ return; }}\nvar rest = index % s.points;\nvar at = batch_out(index / s.points);\n"
        );
        for i in (0..=last).rev() {
            let _ = writeln!(
                body,
                "let i{i} = rest % s.n{i}; rest /= s.n{i};\nif (i{i} >= s.to{i}) {{ return; }}\nat += i{i} * s.out{i};"
            );
        }
        let part = if real { ".x" } else { "" };
        let _ = writeln!(body, "y[at] = (z[index] * bitcast<f32>(s.scale)){part};");
        let places = [Place::Scratch(self.now), Place::Operand(1)];
        let functions = axes::places("batch", &g.batch);
        self.run("store", &places, &g.numbers(), g.repeats() * g.points(), |wgsl| {
            wgsl.read("z", C).write("y", if real { "f32" } else { C }).with(functions).main(body)
        });
    }

    /// Transforms `lines` of `n` points whose neighbours are `inner` apart.
    pub fn passes(&mut self, radices: &[usize], n: usize, inner: usize, lines: usize, inverse: bool) {
        let mut done = 1;
        for &radix in radices {
            self.reserve(self.next, n * lines);
            let numbers = Numbers::default()
                .with("n", n)
                .with("inner", inner)
                .with("lines", lines)
                .with("done", done)
                .with("step", n / radix);
            let places = [Place::Scratch(self.now), Place::Scratch(self.next)];
            let name = format!("radix {radix}{}", if inverse { " inverse" } else { "" });
            self.run(&name, &places, &numbers, lines * n / radix, |wgsl| pass(wgsl, radix, inverse));
            std::mem::swap(&mut self.now, &mut self.next);
            done *= radix;
        }
    }

    /// The same for any `n` by Bluestein's algorithm: a convolution with a chirp, by transforms of `m` points.
    pub fn chirp(&mut self, n: usize, inner: usize, lines: usize, m: usize, largest: usize) {
        let sign = if self.inverse { "" } else { "-" };
        let numbers = Numbers::default()
            .with("n", n)
            .with("m", m)
            .with("inner", inner)
            .with("lines", lines)
            .with_real("scale", 1.0 / m as f32);
        let radices = super::radices(m, largest).unwrap_or_default();
        // e^(∓iπ j²/n): the square counts modulo 2n.
        let chirp = format!(
            "fn chirp(j: u32) -> vec2<f32> {{ let z = root(j * j % (2u * s.n), 2u * s.n); return vec2<f32>(z.x, {sign}z.y); }}"
        );
        let (data, kept) = (self.now, 4);
        let (a, b) = (2, 3);
        for place in [a, b] {
            self.reserve(place, m * lines);
        }
        self.reserve(kept, m);
        let [flow, spread] = [chirp.clone(), chirp.clone()];
        // The chirp's own transform, kept aside.
        self.run("chirp", &[Place::Scratch(a)], &numbers, m, |wgsl| {
            wgsl.write("to", C).with(flow).main(format!(
                "{GROUP}{INDEX}if (index >= s.m) {{ return; }}\nlet j = min(index, s.m - index);\n\
                 let z = chirp(min(j, s.n - 1u));\nto[index] = select(vec2<f32>(), vec2<f32>(z.x, -z.y), j < s.n);"
            ))
        });
        (self.now, self.next) = (a, b);
        self.passes(&radices, m, 1, 1, false);
        let places = [Place::Scratch(self.now), Place::Scratch(kept)];
        self.run("keep", &places, &numbers, m, |wgsl| {
            wgsl.read("x", C)
                .write("to", C)
                .main(format!("{GROUP}{INDEX}if (index >= s.m) {{ return; }}\nto[index] = x[index];"))
        });
        self.run("spread", &[Place::Scratch(data), Place::Scratch(a)], &numbers, m * lines, |wgsl| {
            wgsl.read("x", C).write("to", C).with(spread).main(format!(
                "{GROUP}{INDEX}if (index >= s.m * s.lines) {{ return; }}\nlet j = index % s.m; let l = index / s.m;\n\
                 let at = (l / s.inner * s.n + min(j, s.n - 1u)) * s.inner + l % s.inner;\n\
                 to[index] = select(vec2<f32>(), times(x[at], chirp(min(j, s.n - 1u))), j < s.n);"
            ))
        });
        (self.now, self.next) = (a, b);
        self.passes(&radices, m, 1, lines, false);
        let places = [Place::Scratch(self.now), Place::Scratch(kept), Place::Scratch(self.next)];
        self.run("multiply", &places, &numbers, m * lines, |wgsl| {
            wgsl.read("x", C).read("h", C).write("to", C).main(format!(
                "{GROUP}{INDEX}if (index >= s.m * s.lines) {{ return; }}\nto[index] = times(x[index], h[index % s.m]) * bitcast<f32>(s.scale);"
            ))
        });
        std::mem::swap(&mut self.now, &mut self.next);
        self.passes(&radices, m, 1, lines, true);
        self.run("gather", &[Place::Scratch(self.now), Place::Scratch(data)], &numbers, n * lines, |wgsl| {
            wgsl.read("x", C).write("to", C).with(chirp).main(format!(
                "{GROUP}{INDEX}if (index >= s.n * s.lines) {{ return; }}\nlet j = index / s.inner % s.n;\n\
                 let l = index / s.inner / s.n * s.inner + index % s.inner;\nto[index] = times(x[l * s.m + j], chirp(j));"
            ))
        });
        (self.now, self.next) = (data, 1 - data);
    }
}

/// One pass: a butterfly of `radix` points from each invocation, in the order of Stockham so that nothing is to be sorted.
fn pass(wgsl: Wgsl, radix: usize, inverse: bool) -> Shader {
    let mut butterfly = Butterfly::new(inverse);
    let mut body = format!(
        "{GROUP}{INDEX}if (index >= s.lines * s.step) {{ return; }}\n\
         let within = index % s.inner; let i = index / s.inner % s.step; let line_at = index / s.inner / s.step * s.n;\n\
         let k = i % s.done;\n"
    );
    for t in 0..radix {
        let _ = writeln!(body, "let a{t} = x[(line_at + i + {t}u * s.step) * s.inner + within];");
    }
    let sign = if inverse { "" } else { "-" };
    for t in 1..radix {
        let _ = writeln!(
            body,
            "let r{t} = root(k * {t}u, s.done * {radix}u);\nlet b{t} = times(a{t}, vec2<f32>(r{t}.x, {sign}r{t}.y));"
        );
    }
    let inputs: Vec<_> = (0..radix).map(|t| if t == 0 { "a0".into() } else { format!("b{t}") }).collect();
    let outputs = butterfly.transform(&inputs);
    body.push_str(&butterfly.text);
    for (t, z) in outputs.iter().enumerate() {
        let _ = writeln!(
            body,
            "to[(line_at + (i - k) * {radix}u + k + {t}u * s.done) * s.inner + within] = {z};"
        );
    }
    wgsl.read("x", C).write("to", C).main(body)
}

//! What becomes of the elements of a result, as WGSL: `Acc`, `start`, `add`, `join` and `finish`.

use crate::backends::webgpu::wgsl::{FUNCTIONS, real};
use crate::ops::reduce::{NormOrder, ReduceKind};
use crate::tensor::DType;

/// The text of a fold, and how large its state is.
pub(super) struct Fold {
    pub text: String,
    /// The fields of `Acc`, all four bytes wide, in order.
    pub fields: Vec<(&'static str, &'static str)>,
    /// What the output is an array of; four bytes to a word for truth values.
    pub output: &'static str,
}

/// The element types that the fold of a kind can read.
pub(super) fn accepts(kind: ReduceKind, input: DType) -> bool {
    let float = matches!(input, DType::F32 | DType::F16);
    let integer = matches!(input, DType::I32 | DType::U32);
    match kind {
        ReduceKind::Sum
        | ReduceKind::Max
        | ReduceKind::Min
        | ReduceKind::ArgMax
        | ReduceKind::ArgMin
        | ReduceKind::Any
        | ReduceKind::All => float || integer,
        _ => float,
    }
}

/// The type that elements are read as.
fn value(input: DType) -> &'static str {
    match input {
        DType::I32 => "i32",
        DType::U32 => "u32",
        _ => "f32",
    }
}

/// Which of two is further up, NaN furthest; for integers without NaN.
fn beats(input: DType, sign: &str) -> String {
    let t = value(input);
    if t == "f32" {
        format!("fn beats(a: f32, b: f32) -> bool {{ return (a {sign} b) || (is_nan(a) && !is_nan(b)); }}\n")
    } else {
        format!("fn beats(a: {t}, b: {t}) -> bool {{ return a {sign} b; }}\n")
    }
}

/// The fold of a kind for elements of a type, of which a result has `depth`.
pub(super) fn fold(kind: ReduceKind, input: DType, depth: usize) -> Fold {
    let float = value(input) == "f32";
    let output = match input {
        DType::F16 => "f16",
        _ => value(input),
    };
    let mean = format!("a.x / {}", real(depth as f64));
    match kind {
        ReduceKind::Sum if !float => wide_sum(input),
        ReduceKind::Sum => simple("0.0", "x", "a.x + b.x", "a.x", output),
        ReduceKind::Mean if depth == 0 => simple("0.0", "x", "a.x + b.x", "from_bits(0x7fc00000u)", output),
        ReduceKind::Mean => simple("0.0", "x", "a.x + b.x", &mean, output),
        ReduceKind::Prod => simple("1.0", "x", "a.x * b.x", "a.x", output),
        ReduceKind::Norm(NormOrder::Zero) => {
            simple("0.0", "select(1.0, 0.0, x == 0.0)", "a.x + b.x", "a.x", output)
        }
        ReduceKind::Norm(NormOrder::One) => simple("0.0", "abs(x)", "a.x + b.x", "a.x", output),
        ReduceKind::Norm(NormOrder::Other(p)) => {
            let term = format!("select(pow(abs(x), {}), x, is_nan(x))", real(p.value()));
            let root = format!("select(pow(a.x, {}), a.x, is_nan(a.x))", real(1.0 / p.value()));
            simple("0.0", &term, "a.x + b.x", &root, output)
        }
        ReduceKind::Norm(NormOrder::Two) => length(output),
        ReduceKind::Norm(order) => {
            let sign = if order == NormOrder::Infinity { ">" } else { "<" };
            let first = if order == NormOrder::Infinity { 0.0 } else { f64::INFINITY };
            let mut fold = simple(&real(first), "abs(x)", "select(b.x, a.x, beats(a.x, b.x))", "a.x", output);
            fold.text.insert_str(0, &beats(input, sign));
            fold
        }
        ReduceKind::Max | ReduceKind::Min => extreme(input, kind == ReduceKind::Max, output),
        ReduceKind::ArgMax | ReduceKind::ArgMin => place(input, kind == ReduceKind::ArgMax),
        ReduceKind::Any | ReduceKind::All => truth(input, kind == ReduceKind::Any),
        ReduceKind::Variance { correction } => variance(depth.saturating_sub(correction as usize), output),
        ReduceKind::Cumulative(_) => unreachable!("scans have a kernel of their own"),
    }
    .with_functions()
}

impl Fold {
    fn with_functions(mut self) -> Self {
        let fields: Vec<_> = self.fields.iter().map(|(name, t)| format!("{name}: {t}")).collect();
        self.text = format!("{FUNCTIONS}struct Acc {{ {} }}\n{}", fields.join(", "), self.text);
        self
    }
}

/// One number: a term for each element, joined, and the result of it.
fn simple(first: &str, term: &str, joined: &str, result: &str, output: &'static str) -> Fold {
    let text = format!(
        "fn start() -> Acc {{ return Acc({first}); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{ return Acc({joined}); }}\n\
         fn add(a: Acc, x: f32, i: u32) -> Acc {{ return join(a, Acc({term})); }}\n\
         fn finish(a: Acc) -> {output} {{ return {output}({result}); }}\n"
    );
    Fold { text, fields: vec![("x", "f32")], output }
}

fn extreme(input: DType, largest: bool, output: &'static str) -> Fold {
    let t = value(input);
    let first = match (t, largest) {
        ("f32", true) => real(f64::NEG_INFINITY),
        ("f32", false) => real(f64::INFINITY),
        ("i32", true) => "i32(-2147483648)".into(),
        ("i32", false) => "2147483647".into(),
        (_, true) => "0u".into(),
        (_, false) => "4294967295u".into(),
    };
    let text = format!(
        "{}fn start() -> Acc {{ return Acc({first}); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{ return Acc(select(b.x, a.x, beats(a.x, b.x))); }}\n\
         fn add(a: Acc, x: {t}, i: u32) -> Acc {{ return join(a, Acc(x)); }}\n\
         fn finish(a: Acc) -> {output} {{ return {output}(a.x); }}\n",
        beats(input, if largest { ">" } else { "<" })
    );
    Fold { text, fields: vec![("x", t)], output }
}

/// The first of those that beat all others; `at` is larger than every place before there is one.
fn place(input: DType, largest: bool) -> Fold {
    let t = value(input);
    let text = format!(
        "{}fn start() -> Acc {{ return Acc({t}(0), 0xffffffffu); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{\n\
         if (b.at == 0xffffffffu) {{ return a; }}\nif (a.at == 0xffffffffu) {{ return b; }}\n\
         let first = beats(a.x, b.x) || (!beats(b.x, a.x) && a.at < b.at);\n\
         return Acc(select(b.x, a.x, first), select(b.at, a.at, first));\n}}\n\
         fn add(a: Acc, x: {t}, i: u32) -> Acc {{ return join(a, Acc(x, i)); }}\n\
         fn finish(a: Acc) -> vec2<u32> {{ return vec2<u32>(a.at, 0u); }}\n",
        beats(input, if largest { ">" } else { "<" })
    );
    Fold { text, fields: vec![("x", t), ("at", "u32")], output: "vec2<u32>" }
}

fn truth(input: DType, any: bool) -> Fold {
    let t = value(input);
    let (first, sign) = if any { ("0u", "|") } else { ("1u", "&") };
    let text = format!(
        "fn start() -> Acc {{ return Acc({first}); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{ return Acc(a.x {sign} b.x); }}\n\
         fn add(a: Acc, x: {t}, i: u32) -> Acc {{ return join(a, Acc(select(1u, 0u, x == {t}(0)))); }}\n\
         fn finish(a: Acc) -> u32 {{ return a.x; }}\n"
    );
    Fold { text, fields: vec![("x", "u32")], output: "u32" }
}

/// A sum of 64 bits in two halves.
fn wide_sum(input: DType) -> Fold {
    let t = value(input);
    let high = if t == "i32" { "select(0u, 0xffffffffu, x < 0)" } else { "0u" };
    let text = format!(
        "fn start() -> Acc {{ return Acc(0u, 0u); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{ let low = a.low + b.low; return Acc(low, a.high + b.high + select(0u, 1u, low < a.low)); }}\n\
         fn add(a: Acc, x: {t}, i: u32) -> Acc {{ return join(a, Acc(bitcast<u32>(x), {high})); }}\n\
         fn finish(a: Acc) -> vec2<u32> {{ return vec2<u32>(a.low, a.high); }}\n"
    );
    Fold { text, fields: vec![("low", "u32"), ("high", "u32")], output: "vec2<u32>" }
}

/// Count, mean and sum of squared distances from it; two of them join by Chan's formula.
fn variance(divisor: usize, output: &'static str) -> Fold {
    let divided = if divisor == 0 {
        // As the reference divides: 0/0 is NaN, anything else infinity.
        "select(from_bits(0x7f800000u), from_bits(0x7fc00000u), a.squares == 0.0 || is_nan(a.squares))"
            .to_owned()
    } else {
        format!("a.squares / {}", real(divisor as f64))
    };
    let text = format!(
        "fn start() -> Acc {{ return Acc(0.0, 0.0, 0.0); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{\n\
         if (a.count == 0.0) {{ return b; }}\nif (b.count == 0.0) {{ return a; }}\n\
         let count = a.count + b.count; let apart = b.mean - a.mean; let share = b.count / count;\n\
         return Acc(count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share);\n}}\n\
         fn add(a: Acc, x: f32, i: u32) -> Acc {{\n\
         let count = a.count + 1.0; let apart = x - a.mean; let mean = a.mean + apart / count;\n\
         return Acc(count, mean, a.squares + apart * (x - mean));\n}}\n\
         fn finish(a: Acc) -> {output} {{ return {output}({divided}); }}\n"
    );
    Fold { text, fields: vec![("count", "f32"), ("mean", "f32"), ("squares", "f32")], output }
}

/// The root of a sum of squares, numbers far from one scaled by 2⁻⁸⁵ or 2⁸⁵ so that squares neither overflow nor vanish.
fn length(output: &'static str) -> Fold {
    let text = format!(
        "const DOWN = 2.5849394142282115e-26;\nconst UP = 3.8685626227668134e25;\n\
         fn start() -> Acc {{ return Acc(0.0, 0.0, 0.0); }}\n\
         fn join(a: Acc, b: Acc) -> Acc {{ return Acc(a.big + b.big, a.mid + b.mid, a.small + b.small); }}\n\
         fn add(a: Acc, y: f32, i: u32) -> Acc {{\n\
         let x = abs(y); let down = x * DOWN; let up = x * UP;\n\
         if (x > 3.5184372088832e13) {{ return Acc(a.big + down * down, a.mid, a.small); }}\n\
         if (x < 2.842170943040401e-14) {{ return Acc(a.big, a.mid, a.small + up * up); }}\n\
         return Acc(a.big, a.mid + x * x, a.small);\n}}\n\
         fn finish(a: Acc) -> {output} {{\n\
         var root = sqrt(a.mid + a.small * DOWN * DOWN);\n\
         if (a.mid == 0.0) {{ root = sqrt(a.small) * DOWN; }}\n\
         if (a.big > 0.0) {{ root = sqrt(a.big + a.mid * DOWN * DOWN) * UP; }}\n\
         return {output}(root);\n}}\n"
    );
    Fold { text, fields: vec![("big", "f32"), ("mid", "f32"), ("small", "f32")], output }
}

//! A chain of functions computed in one pass over memory.

use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops;

use arrayvec::ArrayVec;

use super::Function;
use crate::error::{Error, Result};
use crate::tensor::DType;

/// The most inputs of a program.
pub const MAX_INPUTS: usize = 8;
/// The most functions in a program.
pub const MAX_STEPS: usize = 16;
/// The most different constants in a program.
pub const MAX_CONSTANTS: usize = 6;

/// Where a step's argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// An input tensor.
    Input(u8),
    /// The result of an earlier step.
    Step(u8),
    /// A constant of the program.
    Constant(u8),
}

/// One function applied to its arguments; those beyond its arity repeat the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is computed.
    pub function: Function,
    /// From what.
    pub arguments: [Source; 3],
}

/// A short list of functions; the last one's result is the output. Small, `Copy` and hashable: part of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    inputs: u8,
    len: u8,
    constants: u8,
    /// Known from the steps, so that usual calls need not look at the types of every step.
    keeps_floats: bool,
    /// The words of two functions of two inputs without constants, which short calls are known by.
    chain: Option<[u64; 2]>,
    steps: [Step; MAX_STEPS],
    values: [u64; MAX_CONSTANTS],
}

const NO_STEP: Step = Step { function: Function::Add, arguments: [Source::Input(0); 3] };

impl Program {
    /// Part of the first word that a program is hashed by, which no number of an operation has.
    const MARK: u64 = 1 << 63;

    /// A program from an expression over its inputs.
    ///
    /// ```
    /// use shapewise::ops::elementwise::Program;
    /// let fused = Program::build(3, |x| (x[0] * x[1] + x[2]).relu())?;
    /// assert_eq!(fused.to_string(), "relu(add(mul(x0, x1), x2))");
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn build(inputs: usize, expression: impl for<'b> FnOnce(&[Expr<'b>]) -> Expr<'b>) -> Result<Self> {
        if inputs == 0 || inputs > MAX_INPUTS {
            return Err(invalid(format!("{inputs} inputs; a program has 1 to {MAX_INPUTS}")));
        }
        let builder = RefCell::new(Builder::default());
        let leaves: ArrayVec<Expr<'_>, MAX_INPUTS> =
            (0..inputs).map(|i| Expr { source: Source::Input(i as u8), builder: &builder }).collect();
        let result = expression(&leaves).source;
        drop(leaves);
        let Builder { steps, constants, error } = builder.into_inner();
        if let Some(error) = error {
            return Err(error);
        }
        // The output is the last step, so steps after the one that was returned are left out.
        let Source::Step(last) = result else {
            return Err(invalid("the expression computes nothing; apply at least one function".into()));
        };
        let steps = &steps[..=last as usize];
        let mut program = Self {
            inputs: inputs as u8,
            len: 0,
            constants: 0,
            keeps_floats: steps.iter().all(|step| step.function.keeps_floats()),
            chain: None,
            steps: [NO_STEP; MAX_STEPS],
            values: [0; MAX_CONSTANTS],
        };
        program.steps[..steps.len()].copy_from_slice(steps);
        program.len = steps.len() as u8;
        program.values[..constants.len()].copy_from_slice(&constants);
        program.constants = constants.len() as u8;
        if let (2, [first, second], []) = (inputs, steps, &constants[..]) {
            program.chain = Some([first.word(), second.word()]);
        }
        Ok(program)
    }

    /// The program of one function whose arguments are the inputs, then the given constants.
    pub(crate) const fn single(function: Function, constants: &[f64]) -> Self {
        let inputs = function.arguments() - constants.len();
        let mut arguments = [Source::Input(0); 3];
        let mut i = 1;
        while i < function.arguments() {
            arguments[i] =
                if i < inputs { Source::Input(i as u8) } else { Source::Constant((i - inputs) as u8) };
            i += 1;
        }
        let mut steps = [NO_STEP; MAX_STEPS];
        steps[0] = Step { function, arguments };
        let mut values = [0; MAX_CONSTANTS];
        let mut i = 0;
        while i < constants.len() {
            values[i] = constants[i].to_bits();
            i += 1;
        }
        let (inputs, constants) = (inputs as u8, constants.len() as u8);
        Self { inputs, len: 1, constants, keeps_floats: function.keeps_floats(), chain: None, steps, values }
    }

    /// Whether inputs of one floating-point type always give a result of that type.
    #[inline]
    pub(super) fn keeps_floats(&self) -> bool {
        self.keeps_floats
    }

    /// Number of input tensors.
    #[inline]
    pub fn inputs(&self) -> usize {
        self.inputs as usize
    }

    /// The functions, in order; the last one makes the output.
    #[inline]
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.len as usize]
    }

    /// The constants, as bits of f64.
    #[inline(always)]
    fn constant_bits(&self) -> &[u64] {
        &self.values[..self.constants as usize]
    }

    /// A constant.
    #[inline]
    pub fn constant(&self, i: u8) -> f64 {
        f64::from_bits(self.values[i as usize])
    }

    /// The type of each step's result for inputs of these types.
    pub fn step_types(&self, inputs: &[DType]) -> Result<ArrayVec<DType, MAX_STEPS>> {
        if inputs.len() != self.inputs() {
            return Err(invalid(format!(
                "{} tensors were given, the program takes {}",
                inputs.len(),
                self.inputs
            )));
        }
        let mut types = ArrayVec::<DType, MAX_STEPS>::new();
        for step in self.steps() {
            let of = |source: Source| match source {
                Source::Input(i) => Some(inputs[i as usize]),
                Source::Step(i) => Some(types[i as usize]),
                Source::Constant(_) => None,
            };
            let mut arguments = [None; 3];
            for (to, &from) in arguments.iter_mut().zip(&step.arguments[..step.function.arguments()]) {
                *to = of(from);
            }
            let result = step.function.result(arguments)?;
            self.check_constants(*step, arguments)?;
            types.push(result);
        }
        Ok(types)
    }

    /// The output's type for inputs of these types.
    pub fn output_type(&self, inputs: &[DType]) -> Result<DType> {
        let types = self.step_types(inputs)?;
        types.last().copied().ok_or_else(|| invalid("the program is empty".into()))
    }

    /// Constants beside integers must be integers themselves: 0.5 would silently become 0.
    fn check_constants(&self, step: Step, arguments: [Option<DType>; 3]) -> Result<()> {
        let Some(dtype) = arguments.iter().rev().flatten().next().copied().filter(|d| d.is_integer()) else {
            return Ok(());
        };
        for &argument in &step.arguments[..step.function.arguments()] {
            if let Source::Constant(i) = argument {
                let value = self.constant(i);
                if value.fract() != 0.0 || !value.is_finite() {
                    return Err(Error::InvalidArgument {
                        operation: step.function.name(),
                        reason: format!(
                            "the constant {value} is not a value of {dtype}; cast the tensor first"
                        ),
                    });
                }
            }
        }
        Ok(())
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { operation: "element-wise program", reason }
}

impl PartialEq for Program {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.inputs == other.inputs
            && self.steps() == other.steps()
            && self.constant_bits() == other.constant_bits()
    }
}

impl Eq for Program {}

impl Step {
    /// Function and arguments in one word.
    #[inline(always)]
    fn word(self) -> u64 {
        let source = |source: Source| match source {
            Source::Input(i) => u64::from(i),
            Source::Step(i) => 1 << 8 | u64::from(i),
            Source::Constant(i) => 2 << 8 | u64::from(i),
        };
        let [a, b, c] = self.arguments.map(source);
        let mut function = Packed(0);
        self.function.hash(&mut function);
        a | b << 16 | c << 32 | function.0 << 48
    }
}

/// The small numbers that a function is hashed by, its own and that of a type, in a byte each.
struct Packed(u64);

impl Hasher for Packed {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    #[inline(always)]
    fn write_isize(&mut self, number: isize) {
        self.write(&[number as u8]);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Program {
    #[inline(always)]
    fn counts(&self) -> u64 {
        let counts = u64::from(self.inputs) | u64::from(self.len) << 8 | u64::from(self.constants) << 16;
        Self::MARK | counts
    }

    /// What a program of one function without constants is hashed by.
    #[inline(always)]
    pub(super) fn short_words(&self) -> [u64; 2] {
        debug_assert!(self.len == 1 && self.constants == 0);
        [self.counts(), self.steps[0].word()]
    }

    /// The same for two functions of two inputs without constants; `None` for other programs.
    #[inline(always)]
    pub(super) fn chain_words(&self) -> Option<[u64; 3]> {
        let [first, second] = self.chain?;
        Some([const { Self::MARK | 2 | 2 << 8 }, first, second])
    }

    /// A number of the function whose word that is, which comes last; another one for chains, and below that of products.
    #[inline(always)]
    pub(super) const fn kind(word: u64, chain: bool) -> usize {
        (word >> 48 & 31) as usize | if chain { 32 } else { 0 }
    }
}

impl Hash for Program {
    /// Melts into its callers: the words of a program that the compiler knows are then constants.
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.counts());
        for step in self.steps() {
            state.write_u64(step.word());
        }
        for &bits in self.constant_bits() {
            state.write_u64(bits);
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn term(p: &Program, source: Source) -> String {
            match source {
                Source::Input(i) => format!("x{i}"),
                Source::Constant(i) => p.constant(i).to_string(),
                Source::Step(i) => {
                    let step = &p.steps[i as usize];
                    let arguments: Vec<_> =
                        step.arguments[..step.function.arguments()].iter().map(|&a| term(p, a)).collect();
                    match step.function {
                        Function::Cast(to) => format!("{to}({})", arguments.join(", ")),
                        other => format!("{}({})", other.name(), arguments.join(", ")),
                    }
                }
            }
        }
        f.write_str(&term(self, Source::Step(self.len.saturating_sub(1))))
    }
}

/// A value in an expression that [`Program::build`] turns into a program.
#[derive(Clone, Copy)]
pub struct Expr<'b> {
    source: Source,
    builder: &'b RefCell<Builder>,
}

#[derive(Default)]
struct Builder {
    steps: ArrayVec<Step, MAX_STEPS>,
    constants: ArrayVec<u64, MAX_CONSTANTS>,
    error: Option<Error>,
}

impl Builder {
    fn step(&mut self, function: Function, arguments: [Source; 3]) -> Source {
        if self.steps.try_push(Step { function, arguments }).is_err() {
            self.error = Some(invalid(format!("more than {MAX_STEPS} functions; split the chain in two")));
        }
        Source::Step(self.steps.len() as u8 - 1)
    }

    fn constant(&mut self, value: f64) -> Source {
        let bits = value.to_bits();
        if let Some(known) = self.constants.iter().position(|&b| b == bits) {
            return Source::Constant(known as u8);
        }
        if self.constants.try_push(bits).is_err() {
            self.error = Some(invalid(format!("more than {MAX_CONSTANTS} different constants")));
        }
        Source::Constant(self.constants.len() as u8 - 1)
    }
}

impl Expr<'_> {
    fn apply(self, function: Function, second: Option<Source>, third: Option<Source>) -> Self {
        let first = self.source;
        let arguments = [first, second.unwrap_or(first), third.unwrap_or(first)];
        let source = self.builder.borrow_mut().step(function, arguments);
        Self { source, builder: self.builder }
    }

    fn number(self, value: f64) -> Source {
        self.builder.borrow_mut().constant(value)
    }

    /// `self` where the condition `self` is true chooses `a`, else `b`.
    #[must_use]
    pub fn choose(self, a: Self, b: Self) -> Self {
        self.apply(Function::Where, Some(a.source), Some(b.source))
    }

    /// `self` where positive, `slope · self` elsewhere.
    #[must_use]
    pub fn leaky_relu(self, slope: f64) -> Self {
        let slope = self.number(slope);
        self.apply(Function::LeakyRelu, Some(slope), None)
    }

    /// Into the range from `low` to `high`.
    #[must_use]
    pub fn clamp(self, low: f64, high: f64) -> Self {
        let (low, high) = (self.number(low), self.number(high));
        self.apply(Function::Clamp, Some(low), Some(high))
    }

    /// Another element type.
    #[must_use]
    pub fn cast(self, to: DType) -> Self {
        self.apply(Function::Cast(to), None, None)
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {
        impl Expr<'_> {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(self) -> Self {
                self.apply(Function::$function, None, None)
            }
        )*}
    };
}

unary! {
    /// Magnitude.
    abs Abs;
    /// `eˣ`
    exp Exp;
    /// Natural logarithm.
    log Log;
    /// Square root.
    sqrt Sqrt;
    /// `1 / √x`
    rsqrt Rsqrt;
    /// Sine.
    sin Sin;
    /// Cosine.
    cos Cos;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// `1 / (1 + e⁻ˣ)`
    sigmoid Sigmoid;
    /// `max(x, 0)`
    relu Relu;
    /// `x · Φ(x)`
    gelu Gelu;
    /// `x · sigmoid(x)`
    silu Silu;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $function:ident;)*) => {
        impl Expr<'_> {$(
            $(#[$doc])*
            #[must_use]
            pub fn $name(self, other: Self) -> Self {
                self.apply(Function::$function, Some(other.source), None)
            }
        )*}
    };
}

binary! {
    /// The smaller one.
    min Min;
    /// The larger one.
    max Max;
    /// `self` to the power `other`.
    pow Pow;
    /// `self == other`
    equal Equal;
    /// `self != other`
    not_equal NotEqual;
    /// `self < other`
    less Less;
    /// `self <= other`
    less_equal LessEqual;
    /// `self > other`
    greater Greater;
    /// `self >= other`
    greater_equal GreaterEqual;
}

macro_rules! operators {
    ($($trait:ident $method:ident;)*) => {$(
        impl<'b> ops::$trait for Expr<'b> {
            type Output = Expr<'b>;
            fn $method(self, other: Self) -> Self {
                self.apply(Function::$trait, Some(other.source), None)
            }
        }

        impl<'b> ops::$trait<f64> for Expr<'b> {
            type Output = Expr<'b>;
            fn $method(self, other: f64) -> Self {
                let other = self.number(other);
                self.apply(Function::$trait, Some(other), None)
            }
        }
    )*};
}

operators! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl<'b> ops::Neg for Expr<'b> {
    type Output = Expr<'b>;

    fn neg(self) -> Self {
        self.apply(Function::Neg, None, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_word_of_its_own() {
        let word = |function: Function, last: Source| {
            Step { function, arguments: [Source::Input(0), Source::Input(1), last] }.word()
        };
        let mut words: Vec<u64> =
            DType::ALL.iter().map(|&to| word(Function::Cast(to), Source::Input(0))).collect();
        for function in [Function::Add, Function::Mul, Function::Clamp, Function::Relu] {
            for last in [Source::Input(3), Source::Step(3), Source::Constant(3)] {
                words.push(word(function, last));
            }
        }
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }

    #[test]
    fn expressions_become_steps() {
        let p = Program::build(3, |x| (x[0] * x[1] + x[2]).relu()).unwrap();
        assert_eq!(p.to_string(), "relu(add(mul(x0, x1), x2))");
        assert_eq!(p.output_type(&[DType::F32; 3]).unwrap(), DType::F32);
        let q = Program::build(2, |x| x[0].less(x[1]).choose(x[0], x[1] * 2.0)).unwrap();
        assert_eq!(q.to_string(), "where(less(x0, x1), x0, mul(x1, 2))");
        assert_ne!(p, q);
        assert_eq!(q.output_type(&[DType::F64; 2]).unwrap(), DType::F64);
    }

    #[test]
    fn limits_are_errors() {
        assert!(Program::build(0, |x| x[0]).is_err());
        assert!(Program::build(9, |x| x[0].relu()).is_err());
        assert!(Program::build(1, |x| x[0]).is_err());
        assert!(Program::build(1, |x| (0..17).fold(x[0], |e, _| e.exp())).is_err());
        assert!(Program::build(1, |x| (0..7).fold(x[0], |e, i| e + f64::from(i))).is_err());
        let half = Program::build(1, |x| x[0] + 0.5).unwrap();
        assert!(half.output_type(&[DType::I32]).is_err());
        assert!(half.output_type(&[DType::F16]).is_ok());
        assert!(half.output_type(&[]).is_err());
    }

    #[test]
    fn one_function_is_the_same_program_either_way() {
        let built = Program::build(1, |x| x[0].clamp(-1.0, 1.0)).unwrap();
        assert_eq!(built, Program::single(Function::Clamp, &[-1.0, 1.0]));
        assert_eq!(Program::build(2, |x| x[0] + x[1]).unwrap(), Program::single(Function::Add, &[]));
    }
}

//! The functions and chains that have loops of their own, and how a program is recognised as one of them.

use super::{Function, Program, Source};
use crate::backends::cpu::simd::Lanes;
use crate::backends::cpu::simd::math::{self, Scalar};

/// Up to this many instructions memory is what a formula waits for.
const LIGHT: u32 = 4;

/// What is computed from one register of each argument.
pub(super) trait Formula<T: Scalar>: Copy {
    /// Number of arguments.
    const ARITY: usize;
    /// Whether memory is what it waits for: worth unrolling, and streaming past the caches.
    const LIGHT: bool;

    /// The result; arguments beyond the arity are meaningless.
    fn apply<S: Lanes<T>>(s: S, x: [S::V; 3]) -> S::V;
}

/// Receives the type of a recipe's formula, by which arguments may repeat one element along a row.
pub(super) trait Visitor<T: Scalar> {
    /// What it makes of them.
    type Output;
    /// A slow function: any.
    fn heavy<F: Formula<T>>(self) -> Self::Output;
    /// One argument, which does not.
    fn unary<F: Formula<T>>(self) -> Self::Output;
    /// Two arguments: none or the second; the first is exchanged with it.
    fn commuting<F: Formula<T>>(self) -> Self::Output;
    /// Two arguments: none or either.
    fn binary<F: Formula<T>>(self) -> Self::Output;
    /// Three arguments: none, the third, or the second and third.
    fn ternary<F: Formula<T>>(self) -> Self::Output;
    /// All but the first: they are constants.
    fn constants<F: Formula<T>>(self) -> Self::Output;
}

/// Which of a recipe's arguments may repeat one element along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)] // named as the visitor's methods
enum Repeats {
    heavy,
    unary,
    commuting,
    binary,
    ternary,
    constants,
}

macro_rules! formulas {
    ($($(#[$doc:meta])* $name:ident: $repeats:ident $arity:literal, $weight:literal, |$s:ident, $x:ident| $body:expr;)*) => {
        /// A function or chain with a loop of its own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Recipe {$($(#[$doc])* $name,)*}

        impl Recipe {
            /// Vector instructions for one register, about.
            pub(super) const fn weight(self) -> u32 {
                match self {$(Self::$name => $weight,)*}
            }

            /// Whether memory is what it waits for.
            pub(super) const fn is_light(self) -> bool {
                self.weight() <= LIGHT
            }

            const fn repeats(self) -> Repeats {
                match self {$(Self::$name => Repeats::$repeats,)*}
            }

            /// Number of arguments.
            pub(super) const fn arity(self) -> usize {
                match self {$(Self::$name => $arity,)*}
            }

            /// Calls the visitor with the formula's type.
            #[inline]
            pub(super) fn visit<T: Scalar, V: Visitor<T>>(self, visitor: V) -> V::Output {
                match self {$(Self::$name => visitor.$repeats::<formulas::$name>(),)*}
            }
        }

        mod formulas {
            use super::{Formula, Lanes, Scalar, math, relu};
            $(
                #[derive(Clone, Copy)]
                pub(in super::super) struct $name;

                impl<T: Scalar> Formula<T> for $name {
                    const ARITY: usize = $arity;
                    const LIGHT: bool = $weight <= super::LIGHT;

                    #[inline(always)]
                    fn apply<S: Lanes<T>>($s: S, $x: [S::V; 3]) -> S::V {
                        $body
                    }
                }
            )*
        }
    };
}

formulas! {
    Add: commuting 2, 1, |s, x| s.add(x[0], x[1]);
    Sub: binary 2, 1, |s, x| s.sub(x[0], x[1]);
    Mul: commuting 2, 1, |s, x| s.mul(x[0], x[1]);
    Div: binary 2, 4, |s, x| s.div(x[0], x[1]);
    Min: commuting 2, 3, |s, x| s.min_nan(x[0], x[1]);
    Max: commuting 2, 3, |s, x| s.max_nan(x[0], x[1]);
    Pow: heavy 2, 90, |s, x| math::pow(s, x[0], x[1]);
    Neg: unary 1, 1, |s, x| s.neg(x[0]);
    Abs: unary 1, 1, |s, x| s.abs(x[0]);
    Exp: heavy 1, 20, |s, x| math::exp(s, x[0]);
    Log: heavy 1, 30, |s, x| math::log(s, x[0]);
    Sqrt: unary 1, 4, |s, x| s.sqrt(x[0]);
    Rsqrt: heavy 1, 8, |s, x| math::rsqrt(s, x[0]);
    Sin: heavy 1, 28, |s, x| math::sin(s, x[0]);
    Cos: heavy 1, 28, |s, x| math::cos(s, x[0]);
    Tanh: heavy 1, 20, |s, x| math::tanh(s, x[0]);
    Sigmoid: heavy 1, 28, |s, x| math::sigmoid(s, x[0]);
    Relu: unary 1, 1, |s, x| relu(s, x[0]);
    Gelu: heavy 1, 36, |s, x| math::gelu(s, x[0]);
    Silu: heavy 1, 30, |s, x| math::silu(s, x[0]);
    /// The second argument is the slope.
    LeakyRelu: constants 2, 3, |s, x| s.select(s.lt(s.splat(T::ZERO), x[0]), x[0], s.mul(x[0], x[1]));
    /// The second and third arguments are the range; in this order NaN comes through.
    Clamp: constants 3, 2, |s, x| s.min(x[2], s.max(x[1], x[0]));
    AddRelu: commuting 2, 2, |s, x| relu(s, s.add(x[0], x[1]));
    /// Rounded twice, so that every kernel gives the same bits.
    MulAdd: ternary 3, 2, |s, x| s.add(s.mul(x[0], x[1]), x[2]);
    MulAddRelu: ternary 3, 3, |s, x| relu(s, s.add(s.mul(x[0], x[1]), x[2]));
}

/// max(x, 0) that lets NaN through.
#[inline(always)]
fn relu<T: Scalar, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    s.max(s.splat(T::ZERO), x)
}

/// A recipe and where its arguments come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recognised {
    pub(super) recipe: Recipe,
    pub(super) arguments: [Source; 3],
}

impl Recipe {
    /// The recipe of a single function on real floats.
    #[inline]
    pub(super) const fn of(function: Function) -> Option<Self> {
        Some(match function {
            Function::Add => Self::Add,
            Function::Sub => Self::Sub,
            Function::Mul => Self::Mul,
            Function::Div => Self::Div,
            Function::Min => Self::Min,
            Function::Max => Self::Max,
            Function::Pow => Self::Pow,
            Function::Neg => Self::Neg,
            Function::Abs => Self::Abs,
            Function::Exp => Self::Exp,
            Function::Log => Self::Log,
            Function::Sqrt => Self::Sqrt,
            Function::Rsqrt => Self::Rsqrt,
            Function::Sin => Self::Sin,
            Function::Cos => Self::Cos,
            Function::Tanh => Self::Tanh,
            Function::Sigmoid => Self::Sigmoid,
            Function::Relu => Self::Relu,
            Function::Gelu => Self::Gelu,
            Function::Silu => Self::Silu,
            Function::LeakyRelu => Self::LeakyRelu,
            Function::Clamp => Self::Clamp,
            _ => return None,
        })
    }

    /// Whether there is a loop for arguments of which those with a bit set repeat one element along a row.
    pub(super) const fn has_loop(self, repeated: u8) -> bool {
        match self.repeats() {
            Repeats::heavy => true,
            Repeats::unary => repeated == 0,
            Repeats::commuting => repeated == 0 || repeated == 0b10,
            Repeats::binary => repeated <= 0b10,
            Repeats::ternary => matches!(repeated, 0 | 0b100 | 0b110),
            Repeats::constants => repeated == self.constants(),
        }
    }

    /// The arguments that are always constants.
    pub(super) const fn constants(self) -> u8 {
        match self.repeats() {
            Repeats::constants => (1 << self.arity()) - 2,
            _ => 0,
        }
    }

    /// Whether the two arguments may change places.
    pub(super) const fn commutes(self) -> bool {
        matches!(self.repeats(), Repeats::commuting)
    }

    /// This recipe followed by a function of its result alone.
    const fn then(self, function: Function) -> Option<Self> {
        Some(match (self, function) {
            (Self::Add, Function::Relu) => Self::AddRelu,
            (Self::MulAdd, Function::Relu) => Self::MulAddRelu,
            _ => return None,
        })
    }

    /// This recipe followed by a function of its result and one more argument, in either order.
    const fn then_with(self, function: Function) -> Option<Self> {
        Some(match (self, function) {
            (Self::Mul, Function::Add) => Self::MulAdd,
            _ => return None,
        })
    }
}

impl Recognised {
    /// The loop that computes a whole program, if there is one.
    #[inline]
    pub(super) fn program(program: &Program) -> Option<Self> {
        let (first, rest) = program.steps().split_first()?;
        let mut found = Self { recipe: Recipe::of(first.function)?, arguments: first.arguments };
        for (i, step) in rest.iter().enumerate() {
            let before = Source::Step(i as u8);
            found = match step.function.arguments() {
                1 if step.arguments[0] == before => {
                    Self { recipe: found.recipe.then(step.function)?, ..found }
                }
                2 => {
                    let other = match step.arguments {
                        [a, b, _] if a == before && b != before => b,
                        [a, b, _] if b == before && a != before => a,
                        _ => return None,
                    };
                    if matches!(other, Source::Step(_)) {
                        return None;
                    }
                    let recipe = found.recipe.then_with(step.function)?;
                    Self { recipe, arguments: [found.arguments[0], found.arguments[1], other] }
                }
                _ => return None,
            };
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(
        inputs: usize,
        f: impl for<'b> FnOnce(&[super::super::Expr<'b>]) -> super::super::Expr<'b>,
    ) -> Option<Recipe> {
        Recognised::program(&Program::build(inputs, f).unwrap()).map(|r| r.recipe)
    }

    #[test]
    fn common_chains_are_recognised() {
        assert_eq!(recipe(2, |x| x[0] + x[1]), Some(Recipe::Add));
        assert_eq!(recipe(2, |x| (x[0] + x[1]).relu()), Some(Recipe::AddRelu));
        assert_eq!(recipe(3, |x| (x[0] * x[1] + x[2]).relu()), Some(Recipe::MulAddRelu));
        assert_eq!(recipe(3, |x| x[2] + x[0] * x[1]), Some(Recipe::MulAdd));
        assert_eq!(recipe(1, |x| x[0].clamp(0.0, 6.0)), Some(Recipe::Clamp));
    }

    #[test]
    fn other_chains_are_not() {
        assert_eq!(recipe(1, |x| x[0].exp().log()), None);
        assert_eq!(recipe(2, |x| x[0].less(x[1])), None);
        let squared = recipe(2, |x| {
            let product = x[0] * x[1];
            product + product
        });
        assert_eq!(squared, None);
        assert_eq!(recipe(2, |x| x[0] - x[0] * x[1]), None);
    }
}

//! The functions that element-wise programs are made of, and the types they take.

use crate::error::{Error, Result};
use crate::tensor::DType;

/// A function of one element of each argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `a + b`; integers wrap.
    Add,
    /// `a - b`; integers wrap.
    Sub,
    /// `a · b`; integers wrap.
    Mul,
    /// `a / b`; integers truncate, `a / 0` is 0 and the one overflowing quotient wraps.
    Div,
    /// The smaller one; NaN if either is. On truth values: and.
    Min,
    /// The larger one; NaN if either is. On truth values: or.
    Max,
    /// `a` to the power `b`.
    Pow,
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// The second argument where the first is true, the third elsewhere.
    Where,
    /// `-a`; integers wrap.
    Neg,
    /// Magnitude; of a complex number, a real one. The smallest integer wraps.
    Abs,
    /// `eᵃ`
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// `1 / √a`
    Rsqrt,
    /// Sine.
    Sin,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e⁻ᵃ)`
    Sigmoid,
    /// `max(a, 0)`, NaN stays.
    Relu,
    /// `a` where positive, `a · slope` elsewhere; the slope is the second argument.
    LeakyRelu,
    /// `a · Φ(a)`, by erf.
    Gelu,
    /// `a · sigmoid(a)`
    Silu,
    /// Into the range between the second and the third argument; NaN stays.
    Clamp,
    /// Another element type: floats to integers saturate and truncate, NaN gives 0; anything to bool is `a != 0`;
    /// a complex number loses its imaginary part.
    Cast(DType),
}

impl Function {
    /// Number of arguments.
    pub const fn arguments(self) -> usize {
        use Function::{
            Abs, Cast, Clamp, Cos, Exp, Gelu, Log, Neg, Relu, Rsqrt, Sigmoid, Silu, Sin, Sqrt, Tanh, Where,
        };
        match self {
            Neg | Abs | Exp | Log | Sqrt | Rsqrt | Sin | Cos | Tanh | Sigmoid | Relu | Gelu | Silu
            | Cast(_) => 1,
            Where | Clamp => 3,
            _ => 2,
        }
    }

    /// Its name in messages and explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Min => "min",
            Self::Max => "max",
            Self::Pow => "pow",
            Self::Equal => "equal",
            Self::NotEqual => "not_equal",
            Self::Less => "less",
            Self::LessEqual => "less_equal",
            Self::Greater => "greater",
            Self::GreaterEqual => "greater_equal",
            Self::Where => "where",
            Self::Neg => "neg",
            Self::Abs => "abs",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Sin => "sin",
            Self::Cos => "cos",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::Relu => "relu",
            Self::LeakyRelu => "leaky_relu",
            Self::Gelu => "gelu",
            Self::Silu => "silu",
            Self::Clamp => "clamp",
            Self::Cast(_) => "cast",
        }
    }

    /// Whether floats of one type are taken, whatever that is, and give a result of that type.
    pub(super) const fn keeps_floats(self) -> bool {
        !self.is_comparison() && !matches!(self, Self::Where | Self::Cast(_))
    }

    /// Whether the result is a truth value about numbers.
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::NotEqual | Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual
        )
    }

    /// The result's type for arguments of these types; constants have none and take the others' type.
    pub fn result(self, arguments: [Option<DType>; 3]) -> Result<DType> {
        let (condition, numbers) = match self {
            Self::Where => (arguments[0], &arguments[1..3]),
            _ => (None, &arguments[..self.arguments()]),
        };
        if let Some(found) = condition
            && found != DType::Bool
        {
            return Err(self.unsupported(found, "the condition must be bool; compare, or cast to bool"));
        }
        let mut dtype = None;
        for &argument in numbers {
            match (dtype, argument) {
                (Some(left), Some(right)) if left != right => {
                    return Err(Error::DTypeMismatch { operation: self.name(), left, right });
                }
                (None, some) => dtype = some,
                _ => {}
            }
        }
        let dtype = dtype.ok_or_else(|| Error::InvalidArgument {
            operation: self.name(),
            reason: "all arguments are constants; at least one must be a tensor".into(),
        })?;
        self.check(dtype)?;
        Ok(match self {
            Self::Cast(to) => to,
            Self::Abs if dtype == DType::C32 => DType::F32,
            Self::Abs if dtype == DType::C64 => DType::F64,
            _ if self.is_comparison() => DType::Bool,
            _ => dtype,
        })
    }

    /// Whether the function is defined for a type.
    fn check(self, dtype: DType) -> Result<()> {
        let float = dtype.is_float();
        let number = float || dtype.is_integer();
        let signed = number && !matches!(dtype, DType::U8 | DType::U32);
        let complex = dtype.is_complex();
        let (holds, hint) = match self {
            Self::Add | Self::Sub | Self::Mul | Self::Div => {
                (number || complex, "use min and max (and, or) on truth values, or cast to an integer")
            }
            Self::Min | Self::Max | Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual => (
                !complex && dtype != DType::I16,
                "cast i16 to i32; complex numbers have no order: compare their abs",
            ),
            Self::Neg => (signed || complex, "cast to a signed type"),
            Self::Abs => (number || complex, "cast to a number"),
            Self::Relu | Self::Clamp => (number, "cast to a real number"),
            Self::Equal | Self::NotEqual => (dtype != DType::I16, "cast to i32"),
            Self::Where | Self::Cast(_) => (true, ""),
            Self::Pow
            | Self::Exp
            | Self::Log
            | Self::Sqrt
            | Self::Rsqrt
            | Self::Sin
            | Self::Cos
            | Self::Tanh
            | Self::Sigmoid
            | Self::LeakyRelu
            | Self::Gelu
            | Self::Silu => (float, "cast to a floating-point type"),
        };
        if holds { Ok(()) } else { Err(self.unsupported(dtype, hint)) }
    }

    fn unsupported(self, dtype: DType, hint: &str) -> Error {
        Error::UnsupportedDType { operation: self.name(), dtype, hint: hint.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_rules() {
        let two = |f: Function, a, b| f.result([Some(a), Some(b), None]);
        assert_eq!(two(Function::Add, DType::I8, DType::I8).unwrap(), DType::I8);
        assert_eq!(two(Function::Less, DType::F16, DType::F16).unwrap(), DType::Bool);
        assert!(matches!(two(Function::Add, DType::F32, DType::F64), Err(Error::DTypeMismatch { .. })));
        assert!(two(Function::Add, DType::Bool, DType::Bool).is_err());
        assert_eq!(two(Function::Max, DType::Bool, DType::Bool).unwrap(), DType::Bool);
        assert_eq!(Function::Abs.result([Some(DType::C64), None, None]).unwrap(), DType::F64);
        assert!(Function::Exp.result([Some(DType::I32), None, None]).is_err());
        let chosen = Function::Where.result([Some(DType::Bool), Some(DType::U8), None]).unwrap();
        assert_eq!(chosen, DType::U8);
        assert!(Function::Where.result([Some(DType::U8), Some(DType::U8), Some(DType::U8)]).is_err());
    }
}

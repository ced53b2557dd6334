//! One element of any type, and what each function does to it: the meaning that every kernel must match.

use half::{bf16, f16};
use num_complex::Complex;

use super::Function;
use crate::tensor::DType;

/// An element while a program runs. Half-width floats are held as f32 and rounded when they are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// f32, f16 and bf16.
    F32(f32),
    /// f64.
    F64(f64),
    /// Every integer, already wrapped to its type.
    Int(i64),
    /// Truth value.
    Bool(bool),
    /// Complex of f32.
    C32(Complex<f32>),
    /// Complex of f64.
    C64(Complex<f64>),
}

impl Value {
    /// A constant as a value of a type.
    pub fn constant(x: f64, dtype: DType) -> Self {
        Self::F64(x).cast(dtype)
    }

    /// As another type, by the rules of [`Function::Cast`].
    pub fn cast(self, to: DType) -> Self {
        match to {
            DType::F32 => Self::F32(self.to_f32()),
            DType::F16 => Self::F32(f16::from_f32(self.to_f32()).to_f32()),
            DType::BF16 => Self::F32(bf16::from_f32(self.to_f32()).to_f32()),
            DType::F64 => Self::F64(self.to_f64()),
            DType::Bool => Self::Bool(self.truth()),
            DType::C32 => Self::C32(match self {
                Self::C32(z) => z,
                Self::C64(z) => Complex::new(z.re as f32, z.im as f32),
                other => Complex::new(other.to_f32(), 0.0),
            }),
            DType::C64 => Self::C64(match self {
                Self::C64(z) => z,
                Self::C32(z) => Complex::new(f64::from(z.re), f64::from(z.im)),
                other => Complex::new(other.to_f64(), 0.0),
            }),
            DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::U32 | DType::I64 => {
                Self::Int(self.to_int(to))
            }
        }
    }

    fn to_f32(self) -> f32 {
        match self {
            Self::F32(x) => x,
            Self::Int(i) => i as f32,
            other => other.to_f64() as f32,
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            Self::F32(x) => f64::from(x),
            Self::F64(x) => x,
            Self::Int(i) => i as f64,
            Self::Bool(b) => f64::from(u8::from(b)),
            Self::C32(z) => f64::from(z.re),
            Self::C64(z) => z.re,
        }
    }

    fn to_int(self, to: DType) -> i64 {
        match self {
            Self::Int(i) => wrap(i, to),
            Self::Bool(b) => i64::from(b),
            // Rust's `as` truncates and saturates, and NaN gives 0.
            float => {
                let x = float.to_f64();
                match to {
                    DType::I8 => i64::from(x as i8),
                    DType::I16 => i64::from(x as i16),
                    DType::U8 => i64::from(x as u8),
                    DType::I32 => i64::from(x as i32),
                    DType::U32 => i64::from(x as u32),
                    _ => x as i64,
                }
            }
        }
    }

    fn truth(self) -> bool {
        match self {
            Self::F32(x) => x != 0.0,
            Self::F64(x) => x != 0.0,
            Self::Int(i) => i != 0,
            Self::Bool(b) => b,
            Self::C32(z) => z != Complex::new(0.0, 0.0),
            Self::C64(z) => z != Complex::new(0.0, 0.0),
        }
    }
}

/// Keeps the low bits of an integer, as arithmetic of that width does.
fn wrap(i: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i64::from(i as i8),
        DType::U8 => i64::from(i as u8),
        DType::I16 => i64::from(i as i16),
        DType::I32 => i64::from(i as i32),
        DType::U32 => i64::from(i as u32),
        _ => i,
    }
}

/// Applies a function to arguments of type `dtype` (the first of `where` is a truth value).
pub fn apply(function: Function, dtype: DType, arguments: [Value; 3]) -> Value {
    if let Function::Cast(to) = function {
        return arguments[0].cast(to);
    }
    if function == Function::Where {
        return if arguments[0].truth() { arguments[1] } else { arguments[2] };
    }
    let [a, b, c] = arguments;
    match (a, b, c) {
        (Value::F32(a), Value::F32(b), Value::F32(c)) => apply_f32(function, a, b, c),
        (Value::F64(a), Value::F64(b), Value::F64(c)) => apply_f64(function, a, b, c),
        (Value::Int(a), Value::Int(b), Value::Int(c)) => apply_int(function, dtype, a, b, c),
        (Value::Bool(a), Value::Bool(b), _) => apply_int(function, DType::Bool, a.into(), b.into(), 0),
        (Value::C32(a), Value::C32(b), _) => apply_c32(function, a, b),
        (Value::C64(a), Value::C64(b), _) => apply_c64(function, a, b),
        _ => unreachable!("arguments were brought to one type"),
    }
}

macro_rules! real {
    ($name:ident, $t:ident, $wrap:path, $erf:path) => {
        fn $name(function: Function, a: $t, b: $t, c: $t) -> Value {
            let min = |x: $t, y: $t| if x.is_nan() || x < y { x } else { y };
            let max = |x: $t, y: $t| if x.is_nan() || x > y { x } else { y };
            let sigmoid = |x: $t| 1.0 / (1.0 + (-x).exp());
            $wrap(match function {
                Function::Add => a + b,
                Function::Sub => a - b,
                Function::Mul => a * b,
                Function::Div => a / b,
                Function::Min => min(a, b),
                Function::Max => max(a, b),
                Function::Pow => a.powf(b),
                Function::Equal => return Value::Bool(a == b),
                Function::NotEqual => return Value::Bool(a != b),
                Function::Less => return Value::Bool(a < b),
                Function::LessEqual => return Value::Bool(a <= b),
                Function::Greater => return Value::Bool(a > b),
                Function::GreaterEqual => return Value::Bool(a >= b),
                Function::Neg => -a,
                Function::Abs => a.abs(),
                Function::Exp => a.exp(),
                Function::Log => a.ln(),
                Function::Sqrt => a.sqrt(),
                Function::Rsqrt => 1.0 / a.sqrt(),
                Function::Sin => a.sin(),
                Function::Cos => a.cos(),
                Function::Tanh => a.tanh(),
                Function::Sigmoid => sigmoid(a),
                Function::Relu => max(a, 0.0),
                Function::LeakyRelu => {
                    if a > 0.0 {
                        a
                    } else {
                        a * b
                    }
                }
                Function::Gelu => $erf(f64::from(a)) as $t,
                // The limit, where the product would be infinity times zero.
                Function::Silu if a == $t::NEG_INFINITY => -0.0,
                Function::Silu => a * sigmoid(a),
                Function::Clamp => min(max(a, b), c),
                Function::Where | Function::Cast(_) => unreachable!("handled by the caller"),
            })
        }
    };
}

real!(apply_f32, f32, Value::F32, gelu);
real!(apply_f64, f64, Value::F64, gelu);

/// `x · Φ(x)` through the complementary error function.
fn gelu(x: f64) -> f64 {
    if x == f64::INFINITY {
        return x;
    }
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    x * 0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// Complementary error function: the series of erf near zero, the continued fraction of erfc far from it.
pub(crate) fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let z = x.abs();
    let tail = if z < 2.5 {
        // erf(z) = 2/√π · e^(−z²) · Σ 2ⁿ z^(2n+1) / (2n+1)!!, all terms positive.
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        1.0 - 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * sum
    } else if z > 27.5 {
        0.0
    } else {
        // erfc(z) = e^(−z²)/√π · 1/(z + (1/2)/(z + 1/(z + (3/2)/(z + …)))), from the far end.
        let fraction = (1..=120).rev().fold(z, |f, n| z + f64::from(n) * 0.5 / f);
        (-z * z).exp() / std::f64::consts::PI.sqrt() / fraction
    };
    if x < 0.0 { 2.0 - tail } else { tail }
}

fn apply_int(function: Function, dtype: DType, a: i64, b: i64, c: i64) -> Value {
    let number = |i: i64| if dtype == DType::Bool { Value::Bool(i != 0) } else { Value::Int(wrap(i, dtype)) };
    number(match function {
        Function::Add => a.wrapping_add(b),
        Function::Sub => a.wrapping_sub(b),
        Function::Mul => a.wrapping_mul(b),
        Function::Div => a.checked_div(b).unwrap_or(if b == 0 { 0 } else { a }),
        Function::Min => a.min(b),
        Function::Max => a.max(b),
        Function::Equal => return Value::Bool(a == b),
        Function::NotEqual => return Value::Bool(a != b),
        Function::Less => return Value::Bool(a < b),
        Function::LessEqual => return Value::Bool(a <= b),
        Function::Greater => return Value::Bool(a > b),
        Function::GreaterEqual => return Value::Bool(a >= b),
        Function::Neg => a.wrapping_neg(),
        Function::Abs => a.wrapping_abs(),
        Function::Relu => a.max(0),
        Function::Clamp => a.max(b).min(c),
        other => unreachable!("{} is refused for integers", other.name()),
    })
}

macro_rules! complex {
    ($name:ident, $t:ty, $complex:path, $real:path) => {
        fn $name(function: Function, a: Complex<$t>, b: Complex<$t>) -> Value {
            $complex(match function {
                Function::Add => a + b,
                Function::Sub => a - b,
                Function::Mul => a * b,
                Function::Div => a / b,
                Function::Neg => -a,
                Function::Equal => return Value::Bool(a == b),
                Function::NotEqual => return Value::Bool(a != b),
                Function::Abs => return $real(a.norm()),
                other => unreachable!("{} is refused for complex numbers", other.name()),
            })
        }
    };
}

complex!(apply_c32, f32, Value::C32, Value::F32);
complex!(apply_c64, f64, Value::C64, Value::F64);

#[cfg(test)]
mod tests {
    use super::*;

    fn int(function: Function, dtype: DType, a: i64, b: i64) -> Value {
        apply(function, dtype, [Value::Int(a), Value::Int(b), Value::Int(0)])
    }

    #[test]
    fn integers_wrap_and_never_trap() {
        assert_eq!(int(Function::Add, DType::I8, 127, 1), Value::Int(-128));
        assert_eq!(int(Function::Div, DType::I32, 7, 0), Value::Int(0));
        assert_eq!(int(Function::Div, DType::I8, -128, -1), Value::Int(-128));
        assert_eq!(int(Function::Div, DType::I64, i64::MIN, -1), Value::Int(i64::MIN));
        assert_eq!(int(Function::Sub, DType::U8, 1, 2), Value::Int(255));
        assert_eq!(int(Function::Abs, DType::I8, -128, 0), Value::Int(-128));
    }

    #[test]
    fn nan_is_kept_by_min_max_relu_and_clamp() {
        for f in [Function::Min, Function::Max, Function::Relu, Function::Clamp] {
            let v = apply(f, DType::F32, [Value::F32(f32::NAN), Value::F32(0.0), Value::F32(1.0)]);
            assert!(matches!(v, Value::F32(x) if x.is_nan()), "{f:?}");
            if f.arguments() == 2 {
                let v = apply(f, DType::F32, [Value::F32(0.0), Value::F32(f32::NAN), Value::F32(1.0)]);
                assert!(matches!(v, Value::F32(x) if x.is_nan()), "{f:?}");
            }
        }
    }

    #[test]
    fn casts_saturate() {
        assert_eq!(Value::F32(300.0).cast(DType::U8), Value::Int(255));
        assert_eq!(Value::F64(f64::NAN).cast(DType::I32), Value::Int(0));
        assert_eq!(Value::F64(-1.5).cast(DType::I8), Value::Int(-1));
        assert_eq!(Value::Int(300).cast(DType::I8), Value::Int(44));
        assert_eq!(Value::F32(0.5).cast(DType::Bool), Value::Bool(true));
    }

    #[test]
    fn erfc_at_known_points() {
        // Values from tables of the error function.
        for (x, y) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
            (-1.0, 1.842_700_792_949_715),
        ] {
            assert!((erfc(x) / y - 1.0).abs() < 1e-13, "erfc({x}) = {} not {y}", erfc(x));
        }
    }
}

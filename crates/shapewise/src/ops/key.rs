//! The name of a workload in the store: the same over releases, processes and platforms.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::elementwise::{Function, Program, Source};
use super::matmul::MatmulAttributes;
use super::norm::NormKind;
use super::reduce::{NormOrder, ReduceKind};
use super::{Operation, TensorDesc, Workload};
use crate::error::Error;
use crate::hash::Fnv128;

/// A workload as 128 bits; written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct WorkloadKey(u128);

impl WorkloadKey {
    /// The key from its bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl Workload {
    /// Its name in the store: a hash of operation, attributes, operands and whether it works in place.
    pub fn key(&self) -> WorkloadKey {
        let mut hash = Fnv128::new();
        // Hashing text cannot fail.
        canonical(self, &mut hash).unwrap_or_default();
        WorkloadKey(hash.finish())
    }
}

/// Writes what a key is made from. Changing a word here orphans all evidence about the workloads it touches.
fn canonical(workload: &Workload, out: &mut impl Write) -> fmt::Result {
    operation(workload.operation(), out)?;
    for (mark, operands) in [('i', workload.inputs()), ('o', workload.outputs())] {
        for operand in operands {
            out.write_char(';')?;
            out.write_char(mark)?;
            out.write_char(' ')?;
            tensor(operand, out)?;
        }
    }
    if workload.in_place() { out.write_str(";in_place") } else { Ok(()) }
}

fn tensor(desc: &TensorDesc, out: &mut impl Write) -> fmt::Result {
    out.write_str(desc.dtype.name())?;
    out.write_str(if desc.aligned { " a" } else { " u" })?;
    for (&size, &stride) in desc.shape.iter().zip(desc.strides.iter()) {
        out.write_char(' ')?;
        number(size, out)?;
        out.write_str(if stride < 0 { ":-" } else { ":" })?;
        number(stride.unsigned_abs(), out)?;
    }
    Ok(())
}

/// Decimal digits without the formatting machinery: every workload that is new is written, and is mostly numbers.
fn number(mut n: usize, out: &mut impl Write) -> fmt::Result {
    let (mut digits, mut from) = ([b'0'; 20], 20);
    loop {
        from -= 1;
        digits[from] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.write_str(str::from_utf8(&digits[from..]).map_err(|_| fmt::Error)?)
}

fn operation(operation: &Operation, out: &mut impl Write) -> fmt::Result {
    out.write_str(operation.kind().name())?;
    match operation {
        Operation::Conv(a) => a.write_key(out),
        Operation::Copy => Ok(()),
        Operation::Attention(a) => a.write_key(out),
        Operation::Elementwise(p) => program(p, out),
        Operation::Fft(a) => a.write_key(out),
        Operation::Gather(a) => a.write_key(out),
        Operation::Matmul(a) | Operation::PackedMatmul(a) => product(*a, out),
        Operation::Norm(a) => {
            write!(out, " {}", a.kind.name())?;
            if let NormKind::Group { groups } = a.kind {
                write!(out, " {groups}")?;
            }
            let [scale, bias] = [a.scale, a.bias].map(u8::from);
            write!(out, " axis {} {scale}{bias} eps {:x}", a.axis, a.eps().to_bits())
        }
        Operation::IntegerMatmul(a) => a.write_key(out),
        Operation::Pool(a) => a.write_key(out),
        Operation::Pad(a) => a.write_key(out),
        Operation::Quantize(a) => a.write_key(out),
        Operation::QuantizedMatmul(a) => a.write_key(out),
        Operation::Reduce(a) => {
            write!(out, " {} axes {}", a.kind.name(), a.axes)?;
            match a.kind {
                ReduceKind::Variance { correction } => write!(out, " {correction}"),
                ReduceKind::Norm(NormOrder::Other(p)) => write!(out, " p {:x}", p.value().to_bits()),
                ReduceKind::Norm(order) => write!(out, " {order}"),
                _ => Ok(()),
            }
        }
        Operation::Rnn(a) => a.write_key(out),
        Operation::Scatter(a) => a.write_key(out),
        Operation::Softmax(a) => write!(out, " {}", u8::from(a.log)),
        Operation::Sort(a) => a.write_key(out),
        Operation::Sparse(a) => a.write_key(out),
    }
}

fn product(attributes: MatmulAttributes, out: &mut impl Write) -> fmt::Result {
    write!(out, " {} ", u8::from(attributes.bias))?;
    attributes.activation.write_key(out)
}

fn program(program: &Program, out: &mut impl Write) -> fmt::Result {
    write!(out, " {}", program.inputs())?;
    for step in program.steps() {
        write!(out, ",{}", step.function.name())?;
        if let Function::Cast(to) = step.function {
            write!(out, " {to}")?;
        }
        for &argument in &step.arguments[..step.function.arguments()] {
            match argument {
                Source::Input(i) => write!(out, " x{i}")?,
                Source::Step(i) => write!(out, " s{i}")?,
                Source::Constant(i) => write!(out, " c{:x}", program.constant(i).to_bits())?,
            }
        }
    }
    Ok(())
}

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:032x}", self.0))
    }
}

impl fmt::Debug for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkloadKey({self})")
    }
}

impl FromStr for WorkloadKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        crate::hash::parse_hex(text).map(Self).ok_or_else(|| Error::InvalidArgument {
            operation: "workload key",
            reason: "a key is 32 hexadecimal digits".into(),
        })
    }
}

impl From<WorkloadKey> for String {
    fn from(key: WorkloadKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for WorkloadKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::Activation;
    use crate::ops::fft::FftAttributes;
    use crate::ops::norm::NormAttributes;
    use crate::ops::reduce::ReduceAttributes;
    use crate::ops::softmax::SoftmaxAttributes;
    use crate::tensor::Shape;
    use std::collections::HashMap;

    fn desc(shape: &[usize]) -> TensorDesc {
        TensorDesc::contiguous(DType::F32, Shape::new(shape).unwrap())
    }

    fn text(workload: &Workload) -> String {
        let mut text = String::new();
        canonical(workload, &mut text).unwrap();
        text
    }

    fn matmul(bias: bool, activation: Activation) -> Operation {
        Operation::Matmul(MatmulAttributes { bias, activation })
    }

    fn reduce(kind: ReduceKind) -> Operation {
        Operation::Reduce(ReduceAttributes { kind, axes: 1 })
    }

    fn operations() -> Vec<Operation> {
        let chain = |c: f64| Program::build(2, |x| (x[0] * x[1] + c).relu()).unwrap();
        let norm = |kind, eps| Operation::Norm(NormAttributes::new(kind, 1, true, false, eps));
        vec![
            matmul(false, Activation::None),
            matmul(true, Activation::None),
            matmul(false, Activation::Relu),
            matmul(false, Activation::LeakyRelu { slope: 0.1 }),
            matmul(false, Activation::LeakyRelu { slope: f32::NAN }),
            Operation::PackedMatmul(MatmulAttributes::default()),
            Operation::Elementwise(chain(1.0)),
            Operation::Elementwise(chain(-0.0)),
            Operation::Elementwise(chain(0.0)),
            Operation::Elementwise(Program::build(2, |x| x[0] - x[1]).unwrap()),
            Operation::Elementwise(Program::build(2, |x| x[1] - x[0]).unwrap()),
            norm(NormKind::Layer, 1e-5),
            norm(NormKind::Layer, 1e-6),
            norm(NormKind::Group { groups: 2 }, 1e-5),
            norm(NormKind::Group { groups: 4 }, 1e-5),
            reduce(ReduceKind::Sum),
            reduce(ReduceKind::Variance { correction: 0 }),
            reduce(ReduceKind::Variance { correction: 1 }),
            reduce(ReduceKind::Norm(NormOrder::Two)),
            reduce(ReduceKind::Norm(NormOrder::p(2.5).unwrap())),
            Operation::Fft(FftAttributes::default()),
            Operation::Fft(FftAttributes { axes: 2, ..FftAttributes::default() }),
            Operation::Softmax(SoftmaxAttributes { log: false }),
            Operation::Softmax(SoftmaxAttributes { log: true }),
        ]
    }

    #[test]
    fn keys_stay_the_same_over_releases() {
        let (a, b, c) = (desc(&[2, 3]), desc(&[3, 4]), desc(&[2, 4]));
        let workload = Workload::new(matmul(true, Activation::Relu), &[a, b], &[c]);
        assert_eq!(text(&workload), "matmul 1 relu;i f32 a 2:3 3:1;i f32 a 3:4 4:1;o f32 a 2:4 4:1");
        assert_eq!(workload.key().to_string(), "5570aaf0f73fcfa914569b0e945ee134");
        let fused = Operation::Elementwise(Program::build(2, |x| (x[0] * x[1] + 1.0).relu()).unwrap());
        let mut workload = Workload::new(fused, &[a, a], &[a]);
        workload.set_in_place();
        assert_eq!(
            text(&workload),
            "elementwise 2,mul x0 x1,add s0 c3ff0000000000000,relu s1\
             ;i f32 a 2:3 3:1;i f32 a 2:3 3:1;o f32 a 2:3 3:1;in_place"
        );
    }

    #[test]
    fn everything_that_tells_workloads_apart_tells_keys_apart() {
        let (plain, mut far, mut unaligned) = (desc(&[4, 6]), desc(&[4, 6]), desc(&[4, 6]));
        far.strides[0] = 12;
        unaligned.aligned = false;
        let double = TensorDesc::contiguous(DType::F64, plain.shape);
        let mut seen: HashMap<WorkloadKey, Workload> = HashMap::new();
        for operation in operations() {
            for first in [plain, far, unaligned, double, desc(&[6, 4])] {
                for (inputs, outputs) in [(&[first][..], &[plain, plain][..]), (&[first, plain], &[plain])] {
                    for in_place in [false, true] {
                        let mut workload = Workload::new(operation, inputs, outputs);
                        if in_place {
                            workload.set_in_place();
                        }
                        let other = seen.insert(workload.key(), workload.clone());
                        assert!(other.is_none(), "{workload} and {} share a key", other.unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn keys_are_read_back() {
        let key = WorkloadKey::from_bits(0xab);
        assert_eq!(key.to_string(), "000000000000000000000000000000ab");
        assert_eq!(key.to_string().parse::<WorkloadKey>().unwrap(), key);
        assert_eq!(serde_json::from_str::<WorkloadKey>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
        for wrong in ["", "ab", "+00000000000000000000000000000ab", "g00000000000000000000000000000ab"] {
            assert!(wrong.parse::<WorkloadKey>().is_err(), "{wrong}");
        }
    }
}

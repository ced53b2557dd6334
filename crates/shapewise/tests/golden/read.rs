//! Reads golden files.

use half::{bf16, f16};
use num_complex::Complex;
use serde_json::Value;
use shapewise::{DType, Tensor};

/// One line of a golden file.
pub struct Case {
    pub name: String,
    pub attributes: Value,
    pub inputs: Vec<Tensor>,
    pub outputs: Vec<Tensor>,
}

impl Case {
    pub fn text(&self, attribute: &str) -> &str {
        self.attributes[attribute].as_str().unwrap_or_else(|| panic!("{}: no text `{attribute}`", self.name))
    }

    pub fn flag(&self, attribute: &str) -> bool {
        self.attributes[attribute].as_bool().unwrap_or_else(|| panic!("{}: no flag `{attribute}`", self.name))
    }

    pub fn integer(&self, attribute: &str) -> i64 {
        self.attributes[attribute]
            .as_i64()
            .unwrap_or_else(|| panic!("{}: no number `{attribute}`", self.name))
    }
}

/// Every case of an operation.
pub fn cases(operation: &str) -> Vec<Case> {
    let path = format!("{}/tests/golden/{operation}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(case).collect()
}

fn case(line: &str) -> Case {
    let value: Value = serde_json::from_str(line).unwrap();
    let tensors = |key: &str| value[key].as_array().unwrap().iter().map(tensor).collect();
    Case {
        name: value["name"].as_str().unwrap().to_owned(),
        attributes: value["attributes"].clone(),
        inputs: tensors("inputs"),
        outputs: tensors("outputs"),
    }
}

pub fn sizes(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}

fn tensor(value: &Value) -> Tensor {
    let dtype: DType = value["dtype"].as_str().unwrap().parse().unwrap();
    // Read from text and not as JSON numbers, which lose the last bit.
    let data: Vec<&str> = value["data"].as_str().unwrap().split_whitespace().collect();
    let stored = stored(dtype, &data, &sizes(&value["shape"]));
    let steps = value["view"].as_array().map(Vec::as_slice).unwrap_or_default();
    steps.iter().fold(stored, |t, step| view(&t, step))
}

/// One step from a stored tensor to the operand.
fn view(tensor: &Tensor, step: &Value) -> Tensor {
    let number = |i: usize| step[i].as_i64().unwrap();
    match step[0].as_str().unwrap() {
        "transpose" => tensor.transpose(),
        "permute" => tensor.permute(&sizes(&step[1])).unwrap(),
        "broadcast" => tensor.broadcast_to(&sizes(&step[1])).unwrap(),
        "slice" => {
            let (start, end) = (number(2) as usize, number(3) as usize);
            tensor.slice(number(1) as usize, start, end, number(4) as isize).unwrap()
        }
        other => panic!("unknown view `{other}`"),
    }
}

fn stored(dtype: DType, data: &[&str], shape: &[usize]) -> Tensor {
    macro_rules! with {
        ($t:ty, $f:expr) => {
            Tensor::from_vec(data.iter().map(|text| $f(text.parse::<$t>().unwrap())).collect(), shape)
                .unwrap()
        };
    }
    macro_rules! pairs {
        ($t:ty) => {{
            let part = |text: &str| text.parse::<$t>().unwrap();
            let pairs = data.chunks(2).map(|z| Complex::new(part(z[0]), part(z[1])));
            Tensor::from_vec(pairs.collect(), shape).unwrap()
        }};
    }
    match dtype {
        DType::F32 => with!(f32, |x| x),
        DType::F64 => with!(f64, |x| x),
        DType::F16 => with!(f64, f16::from_f64),
        DType::BF16 => with!(f64, bf16::from_f64),
        DType::I8 => with!(i8, |x| x),
        DType::U8 => with!(u8, |x| x),
        DType::I16 => with!(i16, |x| x),
        DType::I32 => with!(i32, |x| x),
        DType::U32 => with!(u32, |x| x),
        DType::I64 => with!(i64, |x| x),
        DType::Bool => with!(u8, |x| x == 1),
        DType::C32 => pairs!(f32),
        DType::C64 => pairs!(f64),
    }
}

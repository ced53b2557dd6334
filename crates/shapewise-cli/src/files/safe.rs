//! Tensors in `.safetensors` files.

use anyhow::{Context, Result, bail};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use shapewise::{DType, Tensor};

use super::bytes;

/// The name of a tensor that this program writes.
const NAME: &str = "output";

const TYPES: [(Dtype, DType); 12] = [
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::U8, DType::U8),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::I64, DType::I64),
    (Dtype::BOOL, DType::Bool),
    (Dtype::C64, DType::C32),
];

/// The tensor of this name, or the only one of the file.
pub fn parse(file: &[u8], name: Option<&str>) -> Result<Tensor> {
    let all = SafeTensors::deserialize(file).context("it is not a whole .safetensors file")?;
    let mut names = all.names();
    names.sort_unstable();
    let name = match (name, &names[..]) {
        (Some(name), _) if names.contains(&name) => name,
        (None, [only]) => only,
        (None, _) => bail!("it has {} tensors; name one as FILE:NAME: {}", names.len(), names.join(", ")),
        (Some(name), _) => bail!("it has no tensor `{name}`; it has {}", names.join(", ")),
    };
    let view = all.tensor(name)?;
    let found = TYPES.iter().find(|t| t.0 == view.dtype());
    let Some((_, dtype)) = found else {
        bail!("its element type {:?} is not known; convert it", view.dtype())
    };
    bytes::tensor(view.data(), *dtype, view.shape())
}

/// A file with one tensor.
pub fn format(tensor: &Tensor) -> Result<Vec<u8>> {
    let found = TYPES.iter().find(|t| t.1 == tensor.dtype());
    let (dtype, _) =
        found.with_context(|| format!(".safetensors has no {}; write a .npy file", tensor.dtype()))?;
    let data = bytes::bytes(tensor)?;
    let view = TensorView::new(*dtype, tensor.shape().to_vec(), &data)?;
    Ok(safetensors::serialize([(NAME, view)], None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_by_name_and_without() {
        let tensor = Tensor::from_vec(vec![1.5f32, -2.0], &[2, 1]).unwrap();
        let file = format(&tensor).unwrap();
        for name in [None, Some(NAME)] {
            let back = parse(&file, name).unwrap();
            assert_eq!((back.shape(), back.to_vec::<f32>().unwrap()), (&[2, 1][..], vec![1.5, -2.0]));
        }
        let error = parse(&file, Some("weights")).unwrap_err().to_string();
        assert!(error.contains("it has output"), "{error}");
        assert!(format(&Tensor::zeros(&[1], DType::C64).unwrap()).is_err());
    }

    #[test]
    fn attacks_are_refused() {
        let whole = format(&Tensor::scalar(1.0f64)).unwrap();
        for length in 0..whole.len() {
            assert!(parse(&whole[..length], None).is_err(), "{length} bytes were taken");
        }
        let header = r#"{"a":{"dtype":"F32","shape":[9000000000,9000000000],"data_offsets":[0,4]}}"#;
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 4]].concat();
        assert!(parse(&file, None).is_err());
        assert!(parse(&[0xff; 64], None).is_err());
    }
}

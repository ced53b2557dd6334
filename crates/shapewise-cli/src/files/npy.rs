//! numpy's file format: a magic word, a header in Python's syntax, the elements.

use anyhow::{Context, Result, bail, ensure};
use shapewise::{DType, Tensor};

use super::bytes;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers of the types we read are about a hundred bytes; a longer one is something else.
const LONGEST_HEADER: usize = 4096;

/// Types as numpy writes them; `V2`, two bytes of anything, is how it writes the bfloat16 of `ml_dtypes`.
const TYPES: [(&str, DType); 14] = [
    ("<f4", DType::F32),
    ("<f8", DType::F64),
    ("<f2", DType::F16),
    ("<V2", DType::BF16),
    ("|V2", DType::BF16),
    ("|i1", DType::I8),
    ("<i2", DType::I16),
    ("|u1", DType::U8),
    ("<i4", DType::I32),
    ("<u4", DType::U32),
    ("<i8", DType::I64),
    ("|b1", DType::Bool),
    ("<c8", DType::C32),
    ("<c16", DType::C64),
];

/// The tensor in a file.
pub fn parse(file: &[u8]) -> Result<Tensor> {
    let rest =
        file.strip_prefix(MAGIC).context("it does not begin as .npy files do; save it by numpy.save")?;
    let (version, rest) = rest.split_at_checked(2).context("it ends within its header")?;
    let (length, rest) = match version[0] {
        1 => {
            let (length, rest) = rest.split_first_chunk().context("it ends within its header")?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk().context("it ends within its header")?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        other => bail!("format {other} is not known; save it by numpy.save"),
    };
    ensure!(length <= LONGEST_HEADER, "its header of {length} bytes is too long");
    let (header, data) = rest.split_at_checked(length).context("it ends within its header")?;
    let header = std::str::from_utf8(header).context("its header is not text")?;
    let (dtype, fortran, shape) = describe(header)?;
    if fortran {
        // Memory along the first axis: the same bytes are the transposed tensor.
        let turned: Vec<usize> = shape.iter().rev().copied().collect();
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        return Ok(bytes::tensor(data, dtype, &turned)?.permute(&order)?);
    }
    bytes::tensor(data, dtype, &shape)
}

/// Element type, whether memory runs along the first axis, and shape.
fn describe(header: &str) -> Result<(DType, bool, Vec<usize>)> {
    let descr = value(header, "descr")?;
    let name = descr.strip_prefix('\'').and_then(|d| d.split_once('\'')).map(|(name, _)| name);
    let Some(name) = name else { bail!("it holds records; save one plain array") };
    let dtype = TYPES.iter().find(|t| t.0 == name).map(|t| t.1);
    let Some(dtype) = dtype else {
        let known: Vec<&str> = TYPES.iter().map(|t| t.0).collect();
        bail!("its element type `{name}` is not known; convert it by astype to one of {}", known.join(" "));
    };
    let fortran = match value(header, "fortran_order")? {
        text if text.starts_with("True") => true,
        text if text.starts_with("False") => false,
        _ => bail!("its header is broken: fortran_order"),
    };
    let shape = value(header, "shape")?.strip_prefix('(').and_then(|s| s.split_once(')')).map(|(s, _)| s);
    let shape = shape.context("its header is broken: shape")?;
    let parts = shape.trim().trim_end_matches(',');
    let parts = parts.split(',').map(str::trim).filter(|_| !parts.is_empty());
    // Only digits: `parse` alone would also take a sign.
    let size = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
    Ok((dtype, fortran, bytes::sizes(parts.map(size))?))
}

/// What follows a key of the header.
fn value<'a>(header: &'a str, key: &str) -> Result<&'a str> {
    let found = header.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    found.with_context(|| format!("its header is broken: no {key}"))
}

/// A tensor as a file.
pub fn format(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let name = TYPES.iter().find(|t| t.1 == dtype).map(|t| t.0);
    let name = name.with_context(|| format!("numpy has no {dtype}; write a .safetensors file"))?;
    let sizes = tensor.shape().iter().fold(String::new(), |list, size| list + &size.to_string() + ", ");
    let mut header = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': ({sizes}), }}");
    // The elements begin at a multiple of 64 bytes; a line break ends the header.
    let before = MAGIC.len() + 4;
    let padded = (before + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', padded - before - header.len() - 1));
    header.push('\n');
    let mut out = [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes()].concat();
    out.extend(bytes::bytes(tensor)?);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = header.len() as u32;
        let length = length.to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [MAGIC, &[version, 0], length, header.as_bytes(), data].concat()
    }

    fn header(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
    }

    #[test]
    fn there_and_back() {
        let tensor = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
        let bytes = format(&tensor).unwrap();
        assert_eq!((bytes.len() - 24) % 64, 0, "elements are aligned");
        let back = parse(&bytes).unwrap();
        assert_eq!((back.shape(), back.to_vec::<f32>().unwrap()), (&[2, 3][..], tensor.to_vec().unwrap()));
        let scalar = parse(&format(&Tensor::scalar(7i64)).unwrap()).unwrap();
        assert_eq!((scalar.rank(), scalar.item::<i64>().unwrap()), (0, 7));
    }

    #[test]
    fn all_versions_and_both_orders() {
        let data: Vec<u8> = [1i32, 2, 3, 4, 5, 6].iter().flat_map(|x| x.to_le_bytes()).collect();
        for version in [1, 2, 3] {
            let plain = parse(&file(version, &header("'<i4'", "False", "(2, 3)"), &data)).unwrap();
            assert_eq!(plain.to_vec::<i32>().unwrap(), [1, 2, 3, 4, 5, 6]);
            let turned = parse(&file(version, &header("'<i4'", "True", "(2, 3)"), &data)).unwrap();
            assert_eq!(turned.shape(), [2, 3]);
            assert_eq!(turned.to_vec::<i32>().unwrap(), [1, 3, 5, 2, 4, 6]);
        }
        assert_eq!(parse(&file(1, &header("'|u1'", "False", "(3,)"), &[1, 2, 3])).unwrap().shape(), [3]);
    }

    #[test]
    fn attacks_are_refused_with_a_reason() {
        let huge = header("'<f4'", "False", "(18446744073709551615, 18446744073709551615)");
        let long = header("'<f4'", "False", &format!("({})", "1, ".repeat(3000)));
        for (bytes, reason) in [
            (b"PK\x03\x04".to_vec(), "does not begin"),
            (MAGIC.to_vec(), "ends within"),
            (file(9, "", &[]), "format 9"),
            ([MAGIC, &[2, 0, 255, 255, 255, 255]].concat(), "too long"),
            ([MAGIC, &[1, 0, 200, 0, b'{']].concat(), "ends within"),
            (file(1, "{}", &[]), "no descr"),
            (file(1, &header("'>f4'", "False", "(1,)"), &[0; 4]), "`>f4` is not known"),
            (file(1, &header("[('a', '<f4')]", "False", "(1,)"), &[0; 4]), "records"),
            (file(1, &header("'|O'", "False", "(1,)"), &[0; 8]), "`|O` is not known"),
            (file(1, &header("'<f4'", "Maybe", "(1,)"), &[0; 4]), "fortran_order"),
            (file(1, &header("'<f4'", "False", "(-1,)"), &[0; 4]), "list of sizes"),
            (file(1, &header("'<f4'", "False", "(1e9,)"), &[0; 4]), "list of sizes"),
            (file(1, &header("'<f4'", "False", "1"), &[0; 4]), "shape"),
            (file(1, &huge, &[0; 4]), "does not fit"),
            (file(2, &long, &[0; 4]), "too long"),
            (file(1, &header("'<f4'", "False", "(2,)"), &[0; 4]), "does not fit"),
            (file(1, &header("'<f4'", "False", "(1,)"), &[0; 9]), "does not fit"),
            (file(1, "\u{fffd}\u{fffd}", &[]), "no descr"),
        ] {
            let error = format!("{:#}", parse(&bytes).unwrap_err());
            assert!(error.contains(reason), "{error} instead of {reason}");
        }
        for length in 0..80 {
            let whole = format(&Tensor::scalar(1.0f64)).unwrap();
            assert!(parse(&whole[..length]).is_err(), "{length} bytes were taken");
        }
    }

    #[test]
    fn every_type_goes_there_and_back() {
        for dtype in DType::ALL {
            let back = parse(&format(&Tensor::zeros(&[2, 3], dtype).unwrap()).unwrap()).unwrap();
            assert_eq!((back.dtype(), back.shape()), (dtype, &[2, 3][..]));
        }
    }

    #[test]
    fn bfloat16_is_read_as_numpy_saves_it() {
        for descr in ["'<V2'", "'|V2'"] {
            // 1 and −2: the upper halves of their float32.
            let tensor = parse(&file(1, &header(descr, "False", "(2,)"), &[0x80, 0x3f, 0x00, 0xc0])).unwrap();
            let values: Vec<f32> =
                tensor.to_vec::<half::bf16>().unwrap().iter().map(|x| x.to_f32()).collect();
            assert_eq!(values, [1.0, -2.0]);
        }
    }
}

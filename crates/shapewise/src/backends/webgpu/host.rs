//! Operands in the host's memory as the bytes that a device gets: element `[0, 0, …]` first, strides as they are, gaps of any content.

use std::borrow::Cow;

use super::error::Result;
use crate::backends::cpu::Operand;
use crate::ops::TensorDesc;

/// Bytes from the first element to the end of the last one; strides must not be negative.
pub fn span(desc: &TensorDesc) -> usize {
    if desc.is_empty() {
        return 0;
    }
    let last: usize =
        desc.shape.iter().zip(desc.strides.iter()).map(|(&n, &s)| (n - 1) * s.unsigned_abs()).sum();
    (last + 1) * desc.dtype.size()
}

/// Calls `run(start, count)`, in elements, for each piece of neighbouring elements; repeated elements come once.
fn for_each_piece(desc: &TensorDesc, mut run: impl FnMut(usize, usize)) {
    if desc.is_empty() {
        return;
    }
    let mut axes: Vec<(usize, usize)> = desc
        .shape
        .iter()
        .zip(desc.strides.iter())
        .map(|(&n, &s)| (n, s.unsigned_abs()))
        .filter(|&(n, s)| n > 1 && s > 0)
        .collect();
    let count = match axes.last() {
        Some(&(n, 1)) => {
            axes.pop();
            n
        }
        _ => 1,
    };
    let mut index = vec![0; axes.len()];
    let mut start = 0;
    loop {
        run(start, count);
        let mut axis = axes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            let (n, stride) = axes[axis];
            index[axis] += 1;
            start += stride;
            if index[axis] < n {
                break;
            }
            start -= n * stride;
            index[axis] = 0;
        }
    }
}

/// The bytes of an input; gaps, which may belong to somebody else, are never read.
pub fn gather<'a>(operand: &Operand<'a>) -> Cow<'a, [u8]> {
    let (desc, first) = (operand.desc(), operand.ptr_bytes().cast_const());
    let (len, size) = (span(desc), desc.dtype.size());
    if len == 0 {
        return Cow::Borrowed(&[]);
    }
    if desc.is_contiguous() {
        // SAFETY: a contiguous operand covers exactly these bytes, which are valid and borrowed for `'a`; the copy to the device is over
        // before any output, which may be the same memory in place, is written.
        return Cow::Borrowed(unsafe { std::slice::from_raw_parts(first, len) });
    }
    let mut bytes = vec![0; len];
    for_each_piece(desc, |start, count| {
        let (at, len) = (start * size, count * size);
        // SAFETY: the piece consists of elements of the operand, which are valid for reading.
        let piece = unsafe { std::slice::from_raw_parts(first.add(at), len) };
        bytes[at..at + len].copy_from_slice(piece);
    });
    Cow::Owned(bytes)
}

/// Fills an output through `read`, which writes all bytes it is given; gaps, which may belong to somebody else, are never written.
pub fn scatter(operand: &mut Operand<'_>, read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
    let (desc, first) = (operand.desc(), operand.ptr_bytes());
    let (len, size) = (span(desc), desc.dtype.size());
    if len == 0 {
        return Ok(());
    }
    if desc.is_contiguous() {
        // SAFETY: a contiguous output covers exactly these bytes and nobody else uses them during the call.
        return read(unsafe { std::slice::from_raw_parts_mut(first, len) });
    }
    let mut bytes = vec![0; len];
    read(&mut bytes)?;
    for_each_piece(desc, |start, count| {
        let (at, len) = (start * size, count * size);
        // SAFETY: the piece consists of elements of the output, which nobody else uses during the call.
        let piece = unsafe { std::slice::from_raw_parts_mut(first.add(at), len) };
        piece.copy_from_slice(&bytes[at..at + len]);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, Shape, Strides};

    fn desc(shape: &[usize], strides: &[isize]) -> TensorDesc {
        let (shape, strides) = (Shape::new(shape).unwrap(), Strides::new(strides).unwrap());
        TensorDesc { dtype: DType::F32, aligned: true, shape, strides }
    }

    fn pieces(shape: &[usize], strides: &[isize]) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for_each_piece(&desc(shape, strides), |start, count| found.push((start, count)));
        found
    }

    #[test]
    fn spans_end_with_the_last_element() {
        assert_eq!(span(&desc(&[2, 3], &[3, 1])), 24);
        assert_eq!(span(&desc(&[2, 3], &[10, 2])), (10 + 4 + 1) * 4);
        assert_eq!(span(&desc(&[5, 3], &[0, 1])), 12);
        assert_eq!(span(&desc(&[0, 3], &[3, 1])), 0);
        assert_eq!(span(&desc(&[], &[])), 4);
    }

    #[test]
    fn pieces_are_the_elements_without_gaps() {
        assert_eq!(pieces(&[2, 3], &[10, 1]), [(0, 3), (10, 3)]);
        assert_eq!(pieces(&[2, 3], &[1, 10]), [(0, 1), (10, 1), (20, 1), (1, 1), (11, 1), (21, 1)]);
        assert_eq!(pieces(&[1000, 3], &[0, 1]), [(0, 3)], "repeated elements come once");
        assert_eq!(pieces(&[], &[]), [(0, 1)]);
        assert_eq!(pieces(&[4, 0], &[1, 1]), []);
    }
}

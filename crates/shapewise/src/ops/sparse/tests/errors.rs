//! What construction and calls refuse, and that they say why.

use super::*;
use crate::error::Result;

fn line(values: &[i64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

fn numbers(n: usize) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32 + 1.0).collect(), &[n]).unwrap()
}

fn says<T: std::fmt::Debug>(result: Result<T>, words: &str) {
    let text = result.unwrap_err().to_string();
    assert!(text.contains(words), "`{text}` does not say `{words}`");
}

#[test]
fn coo_checks_indices_and_lengths() {
    let make = |n, rows: &[i64], columns: &[i64]| {
        SparseMatrix::coo(&numbers(n), &line(rows), &line(columns), [2, 3])
    };
    says(make(2, &[0, 2], &[0, 0]), "row index 2 of entry 1 does not exist; there are 2");
    says(make(2, &[0, 1], &[-1, 0]), "column index -1 of entry 0 does not exist; there are 3");
    says(make(2, &[0], &[0, 0]), "row indices are 1, a vector of 2 is needed");
    says(make(2, &[0, 0], &[0, 0, 0]), "column indices are 3, a vector of 2 is needed");
    let whole = Tensor::zeros(&[2], DType::I32).unwrap();
    says(SparseMatrix::coo(&whole, &whole, &whole, [2, 2]), "cast the values to f32 or f64");
    says(SparseMatrix::coo(&numbers(2), &numbers(2), &whole, [2, 2]), "i32, u32 or i64");
    let square = Tensor::zeros(&[2, 1], DType::F32).unwrap();
    says(SparseMatrix::coo(&square, &whole, &whole, [2, 2]), "values have 1 axes, not 2");
    says(SparseMatrix::coo(&numbers(2), &whole, &whole, [1 << 31, 2]), "too large");
}

#[test]
fn csr_and_csc_check_offsets() {
    let make = |columns: &[i64], offsets: &[i64]| {
        SparseMatrix::csr(&numbers(columns.len()), &line(columns), &line(offsets), [2, 3])
    };
    says(make(&[0, 1], &[0, 2]), "offsets are 2, a vector of 3 is needed");
    says(make(&[0, 1], &[1, 1, 2]), "offsets go from 1 to 2");
    says(make(&[0, 1], &[0, 1, 3]), "offsets go from 0 to 3; they go from 0 to the 2 entries there are");
    says(make(&[0, 1], &[0, 3, 2]), "offset 1 is 3 and the next 2; offsets never fall");
    says(make(&[0, 3], &[0, 1, 2]), "column index 3 of entry 1");
    says(make(&[0, i64::MIN], &[0, 1, 2]), "does not exist");
    let columns = SparseMatrix::csc(&numbers(1), &line(&[2]), &line(&[0, 0, 0, 1]), [2, 3]);
    says(columns, "row index 2 of entry 0 does not exist; there are 2");
    let sorted = make(&[2, 0, 2, 1], &[0, 3, 4]).unwrap();
    assert_eq!(sorted.nonzeros(), 3);
    assert_eq!(sorted.to_dense().unwrap().to_vec::<f32>().unwrap(), [2.0, 0.0, 4.0, 0.0, 4.0, 0.0]);
    assert_eq!(sorted.indices().to_vec::<u32>().unwrap(), [0, 2, 1]);
    assert_eq!(sorted.offsets().to_vec::<u32>().unwrap(), [0, 2, 3]);
}

#[test]
fn bsr_checks_blocks() {
    let values = Tensor::from_vec((1..=8).map(f64::from).collect(), &[2, 2, 2]).unwrap();
    let make = |columns: &[i64], offsets: &[i64], shape| {
        SparseMatrix::bsr(&values, &line(columns), &line(offsets), shape)
    };
    says(make(&[0, 1], &[0, 2], [2, 3]), "blocks of 2×2 do not fill a matrix of 2×3");
    says(make(&[0, 2], &[0, 2], [2, 4]), "column index 2 of entry 1 does not exist; there are 2");
    says(SparseMatrix::bsr(&numbers(2), &line(&[0, 0]), &line(&[0, 2]), [2, 4]), "values have 3 axes, not 1");
    let none = Tensor::zeros(&[0, 0, 2], DType::F64).unwrap();
    says(SparseMatrix::bsr(&none, &line(&[]), &line(&[0]), [0, 2]), "do not fill");
    let summed = make(&[1, 1], &[0, 2], [2, 4]).unwrap();
    assert_eq!(
        summed.to_dense().unwrap().to_vec::<f64>().unwrap(),
        [0.0, 0.0, 6.0, 8.0, 0.0, 0.0, 10.0, 12.0]
    );
    says(summed.to_format(SparseFormat::Bsr { rows: 0, columns: 1 }), "do not fill");
}

#[test]
fn ell_checks_places() {
    let values = Tensor::from_vec(vec![1.0, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let make = |columns: Vec<i32>, shape: &[usize]| {
        SparseMatrix::ell(&values, &Tensor::from_vec(columns, shape).unwrap(), [2, 3])
    };
    says(make(vec![0, 3, 0, 0], &[2, 2]), "column index 3 of place 1 does not exist");
    says(make(vec![0, 1, 0, 0], &[4]), "both are 2 rows × places");
    says(make(vec![0, 1], &[2, 1]), "both are 2 rows × places");
    let a = make(vec![-1, 2, 1, 1], &[2, 2]).unwrap();
    assert_eq!(a.to_dense().unwrap().to_vec::<f64>().unwrap(), [0.0, 0.0, 2.0, 0.0, 7.0, 0.0]);
}

#[test]
fn products_check_their_operands() {
    let rt = runtime();
    let a = coo([2, 3], &[(0, 2, 1.0)]);
    let x = |shape: &[usize]| Tensor::zeros(shape, DType::F64).unwrap();
    says(rt.sparse_matmul(&a, &x(&[2])), "a vector or matrix of 3 rows is needed, not 2");
    says(rt.sparse_matmul(&a, &x(&[3, 1, 1])), "is needed");
    says(rt.sparse_matmul(&a, &numbers(3)), "operands are f64 and f32");
    says(rt.sparse_matmul_batch(&a, &x(&[3])), "a batch of vectors has two axes, not 3");
    says(rt.sparse_linear(&a, &x(&[3]), &x(&[3])), "");
    let mut out = x(&[3]);
    says(rt.sparse_matmul_into(&a, &x(&[3]), &mut out), "the result is 2, the output 3");
    says(rt.sparse_product(&a, &a), "the left matrix is 2×3, the right one 2×3: 3 is not 2");
    says(a.add(&coo([3, 2], &[])), "the matrices are 2×3 and 3×2");
    let other = SparseMatrix::from_dense(&Tensor::zeros(&[2, 3], DType::F32).unwrap()).unwrap();
    says(a.multiply(&other), "operands are f64 and f32");
    says(rt.sparse_product(&a, &other.transpose().unwrap()), "operands are f64 and f32");
    says(SparseMatrix::from_dense(&x(&[3])), "a matrix is needed, not 3");
}

#[test]
fn nothing_times_nothing() {
    let rt = runtime();
    for shape in [[0, 0], [0, 4], [3, 0], [3, 4]] {
        for format in formats(shape) {
            let a = coo(shape, &[]).to_format(format).unwrap();
            assert_eq!(vector(&rt, &a, &vec![1.0; shape[1]]), vec![0.0; shape[0]], "{format}");
            let none = Tensor::zeros(&[shape[1], 0], DType::F64).unwrap();
            assert_eq!(rt.sparse_matmul(&a, &none).unwrap().shape(), [shape[0], 0]);
        }
    }
}

//! Sparse products, algebra and solvers against scipy.

use shapewise::ops::OperationKind;
use shapewise::ops::sparse::{SolverOptions, SparseFormat, SparseMatrix};
use shapewise::{DType, Runtime, Tensor};

use crate::compare::{Tolerance, precision};
use crate::read::{Case, sizes};

const FORMATS: [SparseFormat; 5] = [
    SparseFormat::Csr,
    SparseFormat::Coo,
    SparseFormat::Csc,
    SparseFormat::Ell,
    SparseFormat::Bsr { rows: 4, columns: 4 },
];

/// The answer from matrices of one format.
fn compute(rt: &Runtime, case: &Case, format: SparseFormat) -> shapewise::Result<Tensor> {
    let shape = sizes(&case.attributes["shape"]);
    let matrix = |from: usize| {
        let part = |i: usize| &case.inputs[from + i];
        SparseMatrix::coo(part(0), part(1), part(2), [shape[0], shape[1]])?.to_format(format)
    };
    let a = matrix(0)?;
    match case.text("what") {
        "linear" => rt.sparse_linear(&a, &case.inputs[3], &case.inputs[4]),
        "dense" => a.to_dense(),
        "transpose" => a.transpose()?.to_dense(),
        "add" => a.add(&matrix(3)?)?.to_dense(),
        "subtract" => a.subtract(&matrix(3)?)?.to_dense(),
        "maximum" => a.maximum(&matrix(3)?)?.to_dense(),
        "minimum" => a.minimum(&matrix(3)?)?.to_dense(),
        "multiply" => a.multiply(&matrix(3)?)?.to_dense(),
        "product" => rt.sparse_product(&a, &matrix(3)?.transpose()?)?.to_dense(),
        "solve" => {
            let (b, options) = (&case.inputs[3], SolverOptions::new().tolerance(1e-13));
            let mut found = vec![rt.bicgstab(&a, b, &options)?, rt.gmres(&a, b, &options)?];
            found.extend([rt.jacobi(&a, b, &options)?, rt.gauss_seidel(&a, b, &options)?]);
            if case.flag("symmetric") {
                found.push(rt.conjugate_gradient(&a, b, &options)?);
            }
            assert!(found.iter().all(shapewise::ops::sparse::Solution::converged), "{}", case.name);
            let all: Vec<Vec<f64>> = found.iter().map(|s| s.x.to_vec()).collect::<Result<_, _>>()?;
            let same = |x: &Vec<f64>| x.iter().zip(&all[0]).all(|(x, y)| (x - y).abs() < 1e-11);
            assert!(all.iter().all(same), "{}: solvers disagree", case.name);
            Ok(found.swap_remove(0).x)
        }
        other => panic!("unknown `{other}`"),
    }
}

#[test]
fn sparse() {
    for format in FORMATS {
        crate::run(
            OperationKind::Sparse,
            |rt, case| Ok(vec![compute(rt, case, format)?]),
            |case, dtype: DType, largest| {
                // Up to 16 products and a few duplicates, each below 4; solvers stop at 10⁻¹³ of the right-hand side.
                let solved = case.attributes["what"] == "solve";
                let units = if solved { 1e4 } else { 32.0 };
                Tolerance { ulps: 4.0, absolute: units * precision(dtype).0 * largest.max(1.0) }
            },
        );
    }
}

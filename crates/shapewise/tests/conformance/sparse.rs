//! Sparse matrices of every format and structure times dense operands.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::sparse::{SparseFormat, SparseMatrix};
use shapewise::{DType, Tensor};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::{Grade, Random, line};
use crate::common::numbers::{Numbers, numbers};
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

/// Where entries are.
#[derive(Clone, Copy, Debug)]
enum Structure {
    Anywhere,
    /// A few rows have most of them.
    PowerLaw,
    /// Near the diagonal.
    Banded,
    /// All elements of some blocks of 4×4.
    Blocks,
    /// Only in every third row.
    EmptyRows,
    /// In a single row.
    OneRow,
    Nowhere,
}

const STRUCTURES: [Structure; 7] = [
    Structure::Anywhere,
    Structure::PowerLaw,
    Structure::Banded,
    Structure::Blocks,
    Structure::EmptyRows,
    Structure::OneRow,
    Structure::Nowhere,
];

/// What is added to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bias {
    None,
    PerRow,
    PerColumn,
    Full,
}

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    format: SparseFormat,
    structure: Structure,
    shape: [usize; 2],
    /// Columns of the dense operand; none for a vector.
    n: Option<usize>,
    /// The dense operand is a batch of vectors.
    batch: bool,
    entries: usize,
    bias: Bias,
    grade: Grade,
    x: Arrangement,
    y: Arrangement,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let block = prop::sample::select(vec![(1u32, 1u32), (2, 2), (4, 4), (3, 5), (2, 9), (8, 1)]);
    let format = prop_oneof![
        5 => Just(SparseFormat::Csr),
        2 => Just(SparseFormat::Coo),
        3 => Just(SparseFormat::Csc),
        3 => Just(SparseFormat::Ell),
        3 => block.prop_map(|(rows, columns)| SparseFormat::Bsr { rows, columns }),
    ];
    let size = || prop_oneof![1 => Just(0usize), 2 => Just(1), 8 => 2usize..40, 2 => 40usize..300];
    let n = prop_oneof![
        4 => Just(None),
        1 => Just(Some(1)),
        4 => (2usize..20).prop_map(Some),
        2 => prop::sample::select(vec![0usize, 31, 32, 64, 71, 130]).prop_map(Some),
    ];
    let grades = vec![Grade::Ordinary, Grade::Positive, Grade::Whole, Grade::Special, Grade::Denormal];
    let biases = vec![Bias::None, Bias::None, Bias::PerRow, Bias::PerColumn, Bias::Full];
    let what = (
        prop::sample::select(vec![DType::F32, DType::F64]),
        format,
        prop::sample::select(STRUCTURES.to_vec()),
        (size(), size()),
        n,
        any::<bool>(),
        0usize..600,
        prop::sample::select(biases),
    );
    let how = (prop::sample::select(grades), arrangement(), arrangement(), any::<u64>());
    (what, how).prop_map(
        |((dtype, format, structure, (rows, columns), n, batch, entries, bias), (grade, x, y, seed))| {
            let mut shape = [rows, columns];
            if let SparseFormat::Bsr { rows: r, columns: c } = format {
                shape = [rows.div_ceil(r as usize) * r as usize, columns.div_ceil(c as usize) * c as usize];
            }
            let batch = batch && n.is_some();
            let bias = if batch { Bias::None } else { bias };
            Case { dtype, format, structure, shape, n, batch, entries, bias, grade, x, y, seed }
        },
    )
}

impl Case {
    fn places(&self, random: &mut Random) -> Vec<(usize, usize)> {
        let [rows, columns] = self.shape;
        if rows == 0 || columns == 0 {
            return Vec::new();
        }
        let one = |random: &mut Random| {
            let (row, column) = (random.below(rows), random.below(columns));
            match self.structure {
                Structure::PowerLaw => ((row as f64 * random.unit().powi(6)) as usize, column),
                Structure::Banded => (row, (row * columns / rows + random.below(5)).min(columns - 1)),
                Structure::EmptyRows => (row / 3 * 3, column),
                Structure::OneRow => (rows / 2, column),
                _ => (row, column),
            }
        };
        match self.structure {
            Structure::Nowhere => Vec::new(),
            Structure::Blocks => (0..self.entries / 16)
                .flat_map(|_| {
                    let (row, column) = (random.below(rows) / 4 * 4, random.below(columns) / 4 * 4);
                    (0..16).map(move |i| (row + i / 4, column + i % 4))
                })
                .filter(|&(row, column)| row < rows && column < columns)
                .collect(),
            _ => (0..self.entries).map(|_| one(random)).collect(),
        }
    }

    fn matrix(&self) -> SparseMatrix {
        let mut random = Random::new(self.seed ^ 7);
        let places = self.places(&mut random);
        let len = [places.len()];
        let values = line(self.dtype, places.len(), self.grade, &mut random, true);
        let rows = Tensor::from_vec(places.iter().map(|p| p.0 as i32).collect(), &len).unwrap();
        let columns = Tensor::from_vec(places.iter().map(|p| p.1 as i32).collect(), &len).unwrap();
        let a = SparseMatrix::coo(&values, &rows, &columns, self.shape).unwrap();
        a.to_format(self.format).unwrap()
    }

    fn operand(&self, shape: &[usize], arrangement: &Arrangement) -> Operand {
        Operand::new(self.dtype, shape, arrangement, self.grade, self.seed)
    }

    /// Shapes of the dense operand, the result, and what is added.
    fn shapes(&self) -> [Vec<usize>; 3] {
        let [rows, columns] = self.shape;
        let Some(n) = self.n else {
            return [vec![columns], vec![rows], vec![if self.bias == Bias::Full { rows } else { 1 }]];
        };
        if self.batch {
            return [vec![n, columns], vec![n, rows], Vec::new()];
        }
        let bias = match self.bias {
            Bias::PerRow => vec![rows, 1],
            Bias::PerColumn => vec![n],
            _ => vec![rows, n],
        };
        [vec![columns, n], vec![rows, n], bias]
    }

    /// Σ |value| · |x| + |bias| of each result, finite numbers only.
    fn magnitudes(&self, a: &SparseMatrix, x: &Operand) -> Vec<f64> {
        let absolute = |t: &shapewise::TensorView<'_>| match numbers(t) {
            Numbers::Real(v) => {
                v.into_iter().map(|x| if x.is_finite() { x.abs() } else { 0.0 }).collect::<Vec<_>>()
            }
            _ => unreachable!("all operands are real"),
        };
        let [rows, columns] = self.shape;
        let (a, x) = (absolute(&a.to_dense().unwrap().view()), absolute(&x.view()));
        let n = self.n.unwrap_or(1);
        let at = |k: usize, j: usize| if self.batch { x[j * columns + k] } else { x[k * n + j] };
        let sum = |i: usize, j: usize| (0..columns).map(|k| a[i * columns + k] * at(k, j)).sum::<f64>() + 2.0;
        if self.batch {
            (0..n).flat_map(|j| (0..rows).map(move |i| (i, j))).map(|(i, j)| sum(i, j)).collect()
        } else {
            (0..rows).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| sum(i, j)).collect()
        }
    }
}

#[test]
fn sparse() {
    let mut suite = Suite::new(OperationKind::Sparse);
    each(300, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_sparse() {
    let Some(mut suite) = webgpu::suite(OperationKind::Sparse, 2, webgpu::FLUSHED) else { return };
    each_again(50, cases(), |case| {
        check(&mut suite, &Case { dtype: DType::F32, grade: webgpu::normal(case.grade), ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::rows"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let a = case.matrix();
    let [x, y, bias] = case.shapes();
    let x = case.operand(&x, &case.x);
    let bias = case.operand(&bias, &Arrangement::PLAIN);
    let magnitudes = case.magnitudes(&a, &x);
    // Sums of n products in any order stay below n roundings of the sum of magnitudes.
    let terms = case.shape[1] as f64 + 4.0;
    suite.check(
        || vec![Operand::new(case.dtype, &y, &case.y.writable(), Grade::Whole, 1)],
        |rt, out| {
            let out = out[0].view_mut();
            match (case.batch, case.bias) {
                (true, _) => rt.sparse_matmul_batch_into(&a, x.view(), out),
                (false, Bias::None) => rt.sparse_matmul_into(&a, x.view(), out),
                (false, _) => rt.sparse_linear_into(&a, x.view(), bias.view(), out),
            }
        },
        |_, at| {
            let absolute = terms * precision(case.dtype).0 * magnitudes[at];
            Tolerance { ulps: 2.0, absolute: if case.grade == Grade::Whole { 0.0 } else { absolute } }
        },
    )
}

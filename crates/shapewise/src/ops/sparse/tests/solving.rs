//! Solvers on systems whose answers are known, and on those that have none.

use super::*;
use crate::error::Result;
use crate::tensor::TensorView;

type Solver = fn(&Runtime, &SparseMatrix, &Tensor, &SolverOptions<'_>) -> Result<Solution>;

const ALL: [(&str, Solver); 5] = [
    ("conjugate_gradient", |rt, a, b, o| rt.conjugate_gradient(a, b, o)),
    ("bicgstab", |rt, a, b, o| rt.bicgstab(a, b, o)),
    ("gmres", |rt, a, b, o| rt.gmres(a, b, o)),
    ("jacobi", |rt, a, b, o| rt.jacobi(a, b, o)),
    ("gauss_seidel", |rt, a, b, o| rt.gauss_seidel(a, b, o)),
];

/// The three-point formula of a second derivative, with a little more on the diagonal; symmetric unless `skew` is not zero.
fn tridiagonal(n: usize, skew: f64) -> SparseMatrix {
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push((i, i, 2.5));
        if i > 0 {
            entries.push((i, i - 1, -1.0 - skew));
        }
        if i + 1 < n {
            entries.push((i, i + 1, -1.0 + skew));
        }
    }
    coo([n, n], &entries)
}

fn line(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

#[test]
fn all_solve_a_symmetric_system_in_every_format() {
    let rt = runtime();
    let n = 60;
    let wanted: Vec<f64> = (0..n).map(|i| f64::from(i).sin()).collect();
    let a = tridiagonal(n as usize, 0.0);
    let b = line(&vector(&rt, &a, &wanted));
    for (name, solve) in ALL {
        for format in formats(a.shape()) {
            let a = a.to_format(format).unwrap();
            let found = solve(&rt, &a, &b, &SolverOptions::new().tolerance(1e-12).restart(10)).unwrap();
            assert!(found.converged(), "{name} {format}: {:?} after {}", found.stopped, found.iterations());
            let worst = found
                .x
                .to_vec::<f64>()
                .unwrap()
                .iter()
                .zip(&wanted)
                .map(|(x, w)| (x - w).abs())
                .fold(0.0, f64::max);
            assert!(worst < 1e-10, "{name} {format}: off by {worst}");
            assert!(found.residuals.len() > 2 && found.residual() < found.residuals[0]);
        }
    }
}

#[test]
fn general_systems_need_general_solvers() {
    let rt = runtime();
    let a = tridiagonal(50, 0.7);
    let wanted: Vec<f64> = (0..50).map(|i| 1.0 + f64::from(i % 7)).collect();
    let b = line(&vector(&rt, &a, &wanted));
    for (name, solve) in &ALL[1..] {
        let found = solve(&rt, &a, &b, &SolverOptions::new().tolerance(1e-11)).unwrap();
        assert!(found.converged(), "{name}: {:?}", found.stopped);
        let mut r = vector(&rt, &a, &found.x.to_vec::<f64>().unwrap());
        r.iter_mut().zip(b.to_vec::<f64>().unwrap()).for_each(|(r, b)| *r -= b);
        let left = r.iter().map(|r| r * r).sum::<f64>().sqrt();
        assert!(left < 1e-8, "{name}: true residual {left}");
    }
}

#[test]
fn single_precision_and_a_first_guess() {
    let rt = runtime();
    let a = single(&tridiagonal(30, 0.0));
    let b = Tensor::full(1.0f32, &[30]).unwrap();
    let first = rt.conjugate_gradient(&a, &b, &SolverOptions::new()).unwrap();
    assert!(first.converged());
    let again = rt.conjugate_gradient(&a, &b, &SolverOptions::new().start(&first.x)).unwrap();
    assert!(again.iterations() <= 1, "{:?}", again.residuals);
}

#[test]
fn reports_say_why_it_stopped() {
    let rt = runtime();
    let a = tridiagonal(40, 0.0);
    let b = line(&[1.0; 40]);
    for (name, solve) in ALL {
        let found = solve(&rt, &a, &b, &SolverOptions::new().iterations(3).tolerance(1e-14)).unwrap();
        assert_eq!((found.stopped, found.iterations()), (Stopped::Iterations, 3), "{name}");
        let nothing = solve(&rt, &a, &line(&[0.0; 40]), &SolverOptions::new()).unwrap();
        assert_eq!((nothing.stopped, nothing.iterations()), (Stopped::Converged, 0), "{name}");
    }
    let indefinite = coo([2, 2], &[(0, 0, 1.0), (1, 1, -1.0)]);
    let found = rt.conjugate_gradient(&indefinite, &line(&[0.0, 1.0]), &SolverOptions::new()).unwrap();
    assert_eq!(found.stopped, Stopped::Breakdown("the matrix is not positive definite"));
    let growing = coo([2, 2], &[(0, 0, 1.0), (0, 1, 9.0), (1, 0, 9.0), (1, 1, 1.0)]);
    let found = rt.jacobi(&growing, &line(&[1.0, 1.0]), &SolverOptions::new().iterations(10_000)).unwrap();
    assert_eq!(found.stopped, Stopped::Diverged);
    let singular = coo([2, 2], &[(0, 0, 1.0)]);
    for (name, solve) in &ALL[1..3] {
        let found = solve(&rt, &singular, &line(&[0.0, 1.0]), &SolverOptions::new()).unwrap();
        assert!(matches!(found.stopped, Stopped::Breakdown(_)), "{name}: {:?}", found.stopped);
    }
}

#[test]
fn gmres_ends_within_as_many_steps_as_rows() {
    let rt = runtime();
    let a = coo([3, 3], &[(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)]);
    let found = rt.gmres(&a, &line(&[1.0, 2.0, 3.0]), &SolverOptions::new().tolerance(1e-12)).unwrap();
    assert!(found.converged() && found.iterations() <= 3, "{:?}", found.residuals);
    assert_eq!(
        found.x.to_vec::<f64>().unwrap().iter().map(|x| x.round()).collect::<Vec<_>>(),
        [3.0, 1.0, 2.0]
    );
}

#[test]
fn systems_are_checked() {
    let rt = runtime();
    let says = |result: Result<Solution>, words: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words), "`{text}` does not say `{words}`");
    };
    let (a, b, options) = (tridiagonal(3, 0.0), line(&[1.0; 3]), SolverOptions::new());
    for (_, solve) in ALL {
        says(solve(&rt, &coo([2, 3], &[]), &b, &options), "the matrix is 2×3; only square");
        says(solve(&rt, &a, &line(&[1.0; 2]), &options), "the right-hand side is 2, a vector of 3 is needed");
        says(solve(&rt, &a, &line(&[1.0, f64::NAN, 1.0]), &options), "the right-hand side has NaN at 1");
        says(solve(&rt, &a.scale(f64::INFINITY).unwrap(), &b, &options), "the matrix has");
        says(solve(&rt, &a, &b, &options.tolerance(f64::NAN)), "a tolerance of NaN");
        says(solve(&rt, &a, &b, &options.tolerance(-1.0)), "a tolerance of -1");
        let guess = [0.0, f64::INFINITY, 0.0];
        let start = TensorView::from_slice(&guess, &[3]).unwrap();
        says(solve(&rt, &a, &b, &options.start(start)), "the first guess has inf at 1");
        let single = Tensor::zeros(&[3], DType::F32).unwrap();
        says(solve(&rt, &a, &single, &options), "operands are f64 and f32");
    }
    let hollow = coo([3, 3], &[(0, 0, 1.0), (2, 2, 1.0)]);
    says(rt.jacobi(&hollow, &b, &options), "element 1 of the diagonal is zero");
    says(rt.gauss_seidel(&hollow, &b, &options), "element 1 of the diagonal is zero");
    says(rt.gmres(&a, &b, &options.restart(0)), "restart after 1 or more");
    let empty = coo([0, 0], &[]);
    for (name, solve) in ALL {
        assert!(solve(&rt, &empty, &line(&[]), &options).unwrap().converged(), "{name}");
    }
}

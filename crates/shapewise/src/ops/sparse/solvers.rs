//! Solvers of A x = b: what they are told, what they tell, and what they share.

use super::{Number, SparseMatrix};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{Tensor, TensorView, TensorViewMut};

/// When a solver stops, and where it starts.
#[derive(Clone, Copy, Debug)]
pub struct SolverOptions<'a> {
    pub(super) tolerance: f64,
    pub(super) iterations: usize,
    pub(super) restart: usize,
    pub(super) start: Option<TensorView<'a>>,
}

impl Default for SolverOptions<'_> {
    fn default() -> Self {
        Self { tolerance: 1e-5, iterations: 1000, restart: 30, start: None }
    }
}

impl<'a> SolverOptions<'a> {
    /// A residual of 10⁻⁵ of the right-hand side (scipy's default), at most 1000 iterations, from zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops when |b − A x| ≤ tolerance · |b|.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Stops after so many iterations.
    #[must_use]
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.iterations = iterations;
        self
    }

    /// GMRES: directions that are kept before it starts over; 30 by default.
    #[must_use]
    pub fn restart(mut self, restart: usize) -> Self {
        self.restart = restart;
        self
    }

    /// A first guess; zero by default.
    #[must_use]
    pub fn start(mut self, x: impl Into<TensorView<'a>>) -> Self {
        self.start = Some(x.into());
        self
    }
}

/// Why a solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The residual is small enough.
    Converged,
    /// The iterations that were allowed are used up.
    Iterations,
    /// The method cannot go on: a number that it divides by is zero. Says which.
    Breakdown(&'static str),
    /// Numbers grew beyond the type: the method diverges on this matrix.
    Diverged,
}

/// What a solver found, and how it got there.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The vector with the last residual of the history.
    pub x: Tensor,
    /// |b − A x| at the start and after each iteration. Krylov methods update it without computing A x anew.
    pub residuals: Vec<f64>,
    /// Why it stopped.
    pub stopped: Stopped,
}

impl Solution {
    /// Iterations that were made.
    pub fn iterations(&self) -> usize {
        self.residuals.len() - 1
    }

    /// Whether the residual is small enough.
    pub fn converged(&self) -> bool {
        self.stopped == Stopped::Converged
    }

    /// The last residual.
    pub fn residual(&self) -> f64 {
        self.residuals.last().copied().unwrap_or(f64::NAN)
    }
}

/// A checked system.
pub(super) struct System<'a, T> {
    pub rt: &'a Runtime,
    pub a: SparseMatrix,
    pub b: Vec<T>,
    pub options: &'a SolverOptions<'a>,
}

/// The course of a solver.
pub(super) struct Course<T> {
    pub x: Vec<T>,
    pub residuals: Vec<f64>,
    /// The residual that is small enough.
    pub goal: f64,
}

type Method<T> = fn(&System<'_, T>, &mut Course<T>) -> Result<Stopped>;

impl Runtime {
    /// Solves A x = b by conjugate gradients; A is symmetric and positive definite.
    ///
    /// ```
    /// use shapewise::ops::sparse::{SolverOptions, SparseMatrix};
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let a = SparseMatrix::from_dense(&Tensor::from_vec(vec![4.0, 1.0, 1.0, 3.0], &[2, 2])?)?;
    /// let b = Tensor::from_vec(vec![1.0, 2.0], &[2])?;
    /// let found = rt.conjugate_gradient(&a, &b, &SolverOptions::new().tolerance(1e-12))?;
    /// assert!(found.converged() && found.iterations() <= 2);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn conjugate_gradient<'a>(
        &self,
        a: &SparseMatrix,
        b: impl Into<TensorView<'a>>,
        options: &SolverOptions<'_>,
    ) -> Result<Solution> {
        let methods = (
            super::krylov::conjugate_gradient::<f32> as Method<f32>,
            super::krylov::conjugate_gradient::<f64> as Method<f64>,
        );
        self.solve("conjugate_gradient", a, &b.into(), options, methods)
    }

    /// Solves A x = b by stabilised bi-conjugate gradients; A is any square matrix.
    pub fn bicgstab<'a>(
        &self,
        a: &SparseMatrix,
        b: impl Into<TensorView<'a>>,
        options: &SolverOptions<'_>,
    ) -> Result<Solution> {
        let methods =
            (super::krylov::bicgstab::<f32> as Method<f32>, super::krylov::bicgstab::<f64> as Method<f64>);
        self.solve("bicgstab", a, &b.into(), options, methods)
    }

    /// Solves A x = b by generalised minimal residuals, started over after [`SolverOptions::restart`] directions; A is any
    /// square matrix.
    pub fn gmres<'a>(
        &self,
        a: &SparseMatrix,
        b: impl Into<TensorView<'a>>,
        options: &SolverOptions<'_>,
    ) -> Result<Solution> {
        if options.restart == 0 {
            let reason = "0 directions cannot reduce a residual; restart after 1 or more".into();
            return Err(Error::InvalidArgument { operation: "gmres", reason });
        }
        let methods = (super::gmres::gmres::<f32> as Method<f32>, super::gmres::gmres::<f64> as Method<f64>);
        self.solve("gmres", a, &b.into(), options, methods)
    }

    /// Solves A x = b by Jacobi's iteration, which converges where the diagonal dominates; no element of it is zero.
    pub fn jacobi<'a>(
        &self,
        a: &SparseMatrix,
        b: impl Into<TensorView<'a>>,
        options: &SolverOptions<'_>,
    ) -> Result<Solution> {
        let methods = (
            super::stationary::jacobi::<f32> as Method<f32>,
            super::stationary::jacobi::<f64> as Method<f64>,
        );
        self.solve("jacobi", a, &b.into(), options, methods)
    }

    /// Solves A x = b by Gauss and Seidel's iteration, which converges where the diagonal dominates or A is symmetric and
    /// positive definite; no element of the diagonal is zero.
    pub fn gauss_seidel<'a>(
        &self,
        a: &SparseMatrix,
        b: impl Into<TensorView<'a>>,
        options: &SolverOptions<'_>,
    ) -> Result<Solution> {
        let methods = (
            super::stationary::gauss_seidel::<f32> as Method<f32>,
            super::stationary::gauss_seidel::<f64> as Method<f64>,
        );
        self.solve("gauss_seidel", a, &b.into(), options, methods)
    }

    fn solve(
        &self,
        operation: &'static str,
        a: &SparseMatrix,
        b: &TensorView<'_>,
        options: &SolverOptions<'_>,
        methods: (Method<f32>, Method<f64>),
    ) -> Result<Solution> {
        check(operation, a, b, options)?;
        match a.dtype() {
            crate::tensor::DType::F64 => self.solve_as(operation, a, b, options, methods.1),
            _ => self.solve_as(operation, a, b, options, methods.0),
        }
    }

    fn solve_as<T: Number>(
        &self,
        operation: &'static str,
        a: &SparseMatrix,
        b: &TensorView<'_>,
        options: &SolverOptions<'_>,
        method: Method<T>,
    ) -> Result<Solution> {
        let b = b.to_vec::<T>()?;
        let x = match &options.start {
            Some(start) => start.to_vec::<T>()?,
            None => vec![T::ZERO; b.len()],
        };
        for (what, numbers) in [
            ("the right-hand side", &b[..]),
            ("the first guess", &x),
            ("the matrix", a.values.as_slice::<T>()?),
        ] {
            if let Some(at) = numbers.iter().position(|x| !x.to_f64().is_finite()) {
                let reason = format!("{what} has {} at {at}; all numbers must be finite", numbers[at]);
                return Err(Error::InvalidArgument { operation, reason });
            }
        }
        let goal = options.tolerance * norm(&b);
        let system = System { rt: self, a: a.clone(), b, options };
        let mut course = Course { x, residuals: Vec::new(), goal };
        let stopped = method(&system, &mut course)?;
        let n = course.x.len();
        Ok(Solution { x: Tensor::from_vec(course.x, &[n])?, residuals: course.residuals, stopped })
    }
}

/// Everything that can be said before the first product.
fn check(
    operation: &'static str,
    a: &SparseMatrix,
    b: &TensorView<'_>,
    options: &SolverOptions<'_>,
) -> Result<()> {
    let [rows, columns] = a.shape;
    if rows != columns {
        let reason = format!("the matrix is {rows}×{columns}; only square systems can be solved");
        return Err(Error::ShapeMismatch { operation, reason });
    }
    for (what, vector) in [("right-hand side", Some(b)), ("first guess", options.start.as_ref())] {
        let Some(vector) = vector else { continue };
        if vector.dtype() != a.dtype() {
            return Err(Error::DTypeMismatch { operation, left: a.dtype(), right: vector.dtype() });
        }
        if vector.shape() != [rows] {
            let found = vector.layout().shape;
            let reason = format!("the {what} is {found}, a vector of {rows} is needed");
            return Err(Error::ShapeMismatch { operation, reason });
        }
    }
    if !(options.tolerance >= 0.0 && options.tolerance.is_finite()) {
        let reason = format!("a tolerance of {} is no share; use 0 or more", options.tolerance);
        return Err(Error::InvalidArgument { operation, reason });
    }
    Ok(())
}

impl<T: Number> System<'_, T> {
    /// `out = A x`
    pub fn product(&self, x: &[T], out: &mut [T]) -> Result<()> {
        let n = x.len();
        let out = TensorViewMut::from_slice(out, &[n])?;
        self.rt.sparse_matmul_into(&self.a, TensorView::from_slice(x, &[n])?, out)
    }

    /// `out = b − A x`
    pub fn residual(&self, x: &[T], out: &mut [T]) -> Result<()> {
        self.product(x, out)?;
        for (r, &b) in out.iter_mut().zip(&self.b) {
            *r = b - *r;
        }
        Ok(())
    }
}

impl<T: Number> Course<T> {
    /// Notes the residual after an iteration; says why to stop, if so.
    pub fn note(&mut self, residual: f64, iterations: usize) -> Option<Stopped> {
        self.residuals.push(residual);
        if !residual.is_finite() {
            return Some(Stopped::Diverged);
        }
        if residual <= self.goal {
            return Some(Stopped::Converged);
        }
        (self.residuals.len() > iterations).then_some(Stopped::Iterations)
    }
}

/// Σ x y, in f64.
pub(super) fn inner<T: Number>(x: &[T], y: &[T]) -> f64 {
    // Eight sums at once, so that additions do not wait for each other.
    let (mut sums, mut rest) = ([0.0; 8], 0.0);
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<8>(), y.as_chunks::<8>());
    for (x, y) in xs.iter().zip(ys) {
        for i in 0..8 {
            sums[i] += x[i].to_f64() * y[i].to_f64();
        }
    }
    for (&x, &y) in x_rest.iter().zip(y_rest) {
        rest += x.to_f64() * y.to_f64();
    }
    sums.iter().sum::<f64>() + rest
}

/// √Σ x²
pub(super) fn norm<T: Number>(x: &[T]) -> f64 {
    inner(x, x).sqrt()
}

/// `y += factor · x`
pub(super) fn add_scaled<T: Number>(y: &mut [T], factor: f64, x: &[T]) {
    let factor = T::from_f64(factor);
    for (y, &x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

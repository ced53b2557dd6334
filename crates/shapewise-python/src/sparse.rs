//! Sparse matrices with scipy's constructors, attributes and operators.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use shapewise::ops::sparse::{Solution, SolverOptions, SparseFormat, SparseMatrix};
use shapewise::{Tensor, TensorView};

use crate::array::{Input, numpy_name, to_numpy};
use crate::error::raise;
use crate::runtime::PyRuntime;

/// Sparse matrices of one runtime.
#[pyclass(module = "shapewise", frozen)]
pub struct Sparse {
    pub runtime: PyRuntime,
}

/// A sparse matrix of float32 or float64; it never changes.
///
/// >>> a = sw.sparse.csr(np.array([[0.0, 2.0], [3.0, 0.0]]))
/// >>> (a @ np.array([1.0, 10.0])).tolist(), a.T.toarray().tolist(), a.nnz
/// ([20.0, 3.0], [[0.0, 3.0], [2.0, 0.0]], 2)
#[pyclass(module = "shapewise", name = "SparseMatrix", frozen)]
pub struct Matrix {
    runtime: PyRuntime,
    inner: SparseMatrix,
}

/// What `csr(…)` and its kin are given: scipy's forms.
fn build(
    given: &Bound<'_, PyAny>,
    shape: Option<[usize; 2]>,
    format: SparseFormat,
) -> PyResult<SparseMatrix> {
    let made = if let Ok(matrix) = given.cast::<Matrix>() {
        matrix.get().inner.clone()
    } else if given.hasattr("tocsr")? {
        let csr = given.call_method0("tocsr")?;
        let (data, indices, offsets): (Input<'_>, Input<'_>, Input<'_>) = (
            csr.getattr("data")?.extract()?,
            csr.getattr("indices")?.extract()?,
            csr.getattr("indptr")?.extract()?,
        );
        let shape = csr.getattr("shape")?.extract()?;
        SparseMatrix::csr(data.view()?, indices.view()?, offsets.view()?, shape).map_err(raise)?
    } else if let Ok(parts) = given.cast::<PyTuple>() {
        return of_parts(parts, shape, format);
    } else {
        let dense: Input<'_> = given.extract()?;
        SparseMatrix::from_dense(dense.view()?).map_err(raise)?
    };
    made.to_format(format).map_err(raise)
}

/// `(data, (row, col))` or `(data, indices, indptr)`.
fn of_parts(
    parts: &Bound<'_, PyTuple>,
    shape: Option<[usize; 2]>,
    format: SparseFormat,
) -> PyResult<SparseMatrix> {
    if let Ok((values, (rows, columns))) = parts.extract::<(Input<'_>, (Input<'_>, Input<'_>))>() {
        let shape = match shape {
            Some(shape) => shape,
            None => [1 + largest(&rows)?, 1 + largest(&columns)?],
        };
        let coo = SparseMatrix::coo(values.view()?, rows.view()?, columns.view()?, shape).map_err(raise)?;
        return coo.to_format(format).map_err(raise);
    }
    let Ok((values, indices, offsets)) = parts.extract::<(Input<'_>, Input<'_>, Input<'_>)>() else {
        return Err(PyValueError::new_err(
            "give a dense array, another sparse matrix, (data, (row, col)) or (data, indices, indptr)",
        ));
    };
    let lines = offsets.shape().iter().product::<usize>().saturating_sub(1);
    let across = || largest(&indices).map(|last| last + 1);
    let (values, indices, offsets) = (values.view()?, indices.view()?, offsets.view()?);
    let made = match format {
        SparseFormat::Csr => SparseMatrix::csr(
            values,
            indices,
            offsets,
            shape.map_or_else(|| Ok::<_, PyErr>([lines, across()?]), Ok)?,
        ),
        SparseFormat::Csc => SparseMatrix::csc(
            values,
            indices,
            offsets,
            shape.map_or_else(|| Ok::<_, PyErr>([across()?, lines]), Ok)?,
        ),
        SparseFormat::Bsr { .. } => {
            let &[_, r, c] = values.shape() else {
                return Err(PyValueError::new_err("the data of bsr are blocks × rows × columns of a block"));
            };
            let whole = || Ok::<_, PyErr>([lines.saturating_mul(r), across()?.saturating_mul(c)]);
            SparseMatrix::bsr(values, indices, offsets, shape.map_or_else(whole, Ok)?)
        }
        _ => return Err(PyValueError::new_err("coo takes (data, (row, col))")),
    };
    made.map_err(raise)
}

/// The largest index, so that a shape that was not given can be told.
fn largest(indices: &Input<'_>) -> PyResult<usize> {
    let wide = indices.cast("int64")?;
    let all = wide.view()?.to_vec::<i64>().map_err(raise)?;
    let most =
        all.into_iter().max().ok_or_else(|| PyValueError::new_err("an empty matrix needs its shape"))?;
    usize::try_from(most).map_err(|_| PyValueError::new_err(format!("index {most} is below zero")))
}

/// A view as an array of its own.
fn copy<'py>(py: Python<'py>, view: TensorView<'_>, runtime: &PyRuntime) -> PyResult<Bound<'py, PyAny>> {
    runtime.run(py, |rt| rt.copy(view))
}

impl Sparse {
    fn matrix(&self, inner: SparseMatrix) -> Matrix {
        Matrix { runtime: PyRuntime { inner: self.runtime.inner.clone() }, inner }
    }
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident $format:ident;)*) => {
        #[pymethods]
        impl Sparse {$(
            $(#[$doc])*
            #[pyo3(signature = (given, shape = None))]
            fn $name(&self, given: &Bound<'_, PyAny>, shape: Option<[usize; 2]>) -> PyResult<Matrix> {
                Ok(self.matrix(build(given, shape, SparseFormat::$format)?))
            }
        )*}
    };
}

constructors! {
    /// Entries row by row: from a dense array, another matrix (scipy's too), `(data, (row, col))` or
    /// `(data, indices, indptr)`. Duplicates are summed.
    csr Csr;
    /// Entries column by column; given as for `csr`, with row indices.
    csc Csc;
    /// Row, column and value of each entry: `(data, (row, col))`, a dense array or another matrix.
    coo Coo;
    /// As many places in each row as the longest row needs: from a dense array or another matrix.
    ell Ell;
}

macro_rules! solvers {
    ($($(#[$doc:meta])* $name:ident $method:ident;)*) => {
        #[pymethods]
        impl Sparse {$(
            $(#[$doc])*
            #[pyo3(signature = (a, b, x0 = None, rtol = 1e-5, maxiter = 1000, restart = 30))]
            #[allow(clippy::too_many_arguments)] // Python's signature
            fn $name<'py>(
                &self,
                py: Python<'py>,
                a: &Bound<'py, Matrix>,
                b: Input<'py>,
                x0: Option<Input<'py>>,
                rtol: f64,
                maxiter: usize,
                restart: usize,
            ) -> PyResult<(Bound<'py, PyAny>, usize)> {
                let mut options = SolverOptions::new().tolerance(rtol).iterations(maxiter).restart(restart);
                if let Some(x0) = &x0 {
                    options = options.start(x0.view()?);
                }
                let (a, b) = (&a.get().inner, b.view()?);
                let found: Solution = self.runtime.compute(py, |rt| rt.$method(a, b, &options))?;
                let info = if found.converged() { 0 } else { found.iterations().max(1) };
                Ok((to_numpy(py, found.x)?, info))
            }
        )*}
    };
}

solvers! {
    /// Conjugate gradients for symmetric positive definite matrices: `(x, info)`; `info` is 0 where |b - A x| <= rtol |b| was
    /// reached, else the iterations that were made.
    cg conjugate_gradient;
    /// Stabilised biconjugate gradients for any square matrix; as `cg`.
    bicgstab bicgstab;
    /// Generalised minimal residuals, started over after `restart` directions; as `cg`.
    gmres gmres;
    /// Jacobi's iteration for matrices with a strong diagonal; as `cg`.
    jacobi jacobi;
    /// Gauss and Seidel's iteration; as `cg`.
    gauss_seidel gauss_seidel;
}

#[pymethods]
impl Sparse {
    /// Dense blocks row by row: `(data, indices, indptr)` with data of blocks × rows × columns, or a dense array or another
    /// matrix cut into blocks of `blocksize`.
    #[pyo3(signature = (given, shape = None, blocksize = None))]
    fn bsr(
        &self,
        given: &Bound<'_, PyAny>,
        shape: Option<[usize; 2]>,
        blocksize: Option<(u32, u32)>,
    ) -> PyResult<Matrix> {
        if blocksize.is_none() && given.cast::<PyTuple>().is_err() {
            return Err(PyValueError::new_err("say how large the blocks are: blocksize=(rows, columns)"));
        }
        let (rows, columns) = blocksize.unwrap_or((1, 1));
        Ok(self.matrix(build(given, shape, SparseFormat::Bsr { rows, columns })?))
    }

    /// `a @ x`, or `a @ x + bias` in one pass.
    #[pyo3(signature = (a, x, bias = None))]
    fn matmul<'py>(
        &self,
        py: Python<'py>,
        a: &Bound<'py, Matrix>,
        x: Input<'py>,
        bias: Option<Input<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (a, x) = (&a.get().inner, x.view()?);
        let bias = bias.as_ref().map(Input::view).transpose()?;
        self.runtime.run(py, |rt| match bias {
            Some(bias) => rt.sparse_linear(a, x, bias),
            None => rt.sparse_matmul(a, x),
        })
    }
}

#[pymethods]
impl Matrix {
    /// numpy leaves `array @ matrix` and the like to the matrix.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    const ARRAY_UFUNC: Option<bool> = None;

    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let [rows, columns] = self.inner.shape();
        (rows, columns)
    }

    /// Entries that are kept.
    #[getter]
    fn nnz(&self) -> usize {
        self.inner.nonzeros()
    }

    /// The type of the values.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("dtype", (numpy_name(self.inner.dtype()),))
    }

    /// 'csr', 'csc', 'coo', 'bsr' or 'ell'.
    #[getter]
    fn format(&self) -> &'static str {
        match self.inner.format() {
            SparseFormat::Coo => "coo",
            SparseFormat::Csr => "csr",
            SparseFormat::Csc => "csc",
            SparseFormat::Bsr { .. } => "bsr",
            _ => "ell",
        }
    }

    /// A copy of the values.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copy(py, self.inner.values(), &self.runtime)
    }

    /// A copy of the columns (csc: rows; bsr: columns of blocks).
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copy(py, self.inner.indices(), &self.runtime)
    }

    /// A copy of where lines start; for coo the row of each entry.
    #[getter]
    fn indptr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copy(py, self.inner.offsets(), &self.runtime)
    }

    /// The transposed matrix.
    #[getter(T)]
    fn transposed(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, SparseMatrix::transpose)
    }

    /// All elements as a dense array.
    fn toarray<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inner = &self.inner;
        to_numpy(py, py.detach(|| inner.to_dense()).map_err(raise)?)
    }

    /// The same matrix row by row.
    fn tocsr(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.to_format(SparseFormat::Csr))
    }

    /// The same matrix column by column.
    fn tocsc(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.to_format(SparseFormat::Csc))
    }

    /// The same matrix entry by entry.
    fn tocoo(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.to_format(SparseFormat::Coo))
    }

    /// The same matrix with as many places in each row as the longest row needs.
    fn toell(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.to_format(SparseFormat::Ell))
    }

    /// The same matrix in dense blocks.
    fn tobsr(&self, py: Python<'_>, blocksize: (u32, u32)) -> PyResult<Self> {
        let (rows, columns) = blocksize;
        self.compute(py, |a| a.to_format(SparseFormat::Bsr { rows, columns }))
    }

    /// The product of the elements at the same place.
    fn multiply(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = &other.get().inner;
        self.compute(py, |a| a.multiply(other))
    }

    /// The larger of the elements at the same place.
    fn maximum(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = &other.get().inner;
        self.compute(py, |a| a.maximum(other))
    }

    /// The smaller of the elements at the same place.
    fn minimum(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = &other.get().inner;
        self.compute(py, |a| a.minimum(other))
    }

    fn __matmul__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let a = &self.inner;
        if let Ok(other) = other.cast::<Self>() {
            let b = &other.get().inner;
            let product = self.runtime.compute(py, |rt| rt.sparse_product(a, b))?;
            return Ok(Bound::new(py, self.like(product))?.into_any());
        }
        let x: Input<'_> = other.extract()?;
        let x = x.view()?;
        self.runtime.run(py, |rt| rt.sparse_matmul(a, x))
    }

    fn __rmatmul__<'py>(&self, py: Python<'py>, other: Input<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (a, x) = (&self.inner, other.view()?);
        let turned = |x: TensorView<'_>| -> shapewise::Result<Tensor> {
            let order: Vec<usize> = (0..x.rank()).rev().collect();
            self.runtime.inner.permute(x, &order)
        };
        self.runtime.run(py, |rt| turned(rt.sparse_matmul(&a.transpose()?, &turned(x)?)?.view()))
    }

    fn __add__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = &other.get().inner;
        self.compute(py, |a| a.add(other))
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        let other = &other.get().inner;
        self.compute(py, |a| a.subtract(other))
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.map(f64::abs))
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Self> {
        self.compute(py, |a| a.scale(-1.0))
    }

    fn __mul__(&self, py: Python<'_>, factor: f64) -> PyResult<Self> {
        self.compute(py, |a| a.scale(factor))
    }

    fn __rmul__(&self, py: Python<'_>, factor: f64) -> PyResult<Self> {
        self.__mul__(py, factor)
    }

    fn __repr__(&self) -> String {
        let [rows, columns] = self.inner.shape();
        let (format, dtype) = (self.format(), numpy_name(self.inner.dtype()));
        format!("<shapewise.SparseMatrix {rows}x{columns} {dtype} {format} with {} entries>", self.nnz())
    }
}

impl Matrix {
    fn like(&self, inner: SparseMatrix) -> Self {
        Self { runtime: PyRuntime { inner: self.runtime.inner.clone() }, inner }
    }

    /// Computes another matrix without Python's lock.
    fn compute(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&SparseMatrix) -> shapewise::Result<SparseMatrix> + Send,
    ) -> PyResult<Self> {
        let inner = &self.inner;
        Ok(self.like(py.detach(|| call(inner)).map_err(raise)?))
    }
}

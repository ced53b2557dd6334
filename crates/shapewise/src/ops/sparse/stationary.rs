//! Jacobi's iteration, and Gauss and Seidel's.

use super::Number;
use super::solvers::{Course, Stopped, System, norm};
use crate::error::{Error, Result};

/// The diagonal, none of it zero.
fn diagonal<T: Number>(operation: &'static str, system: &System<'_, T>) -> Result<Vec<T>> {
    let diagonal = system.a.diagonal::<T>()?;
    match diagonal.iter().position(|&d| d == T::ZERO) {
        Some(row) => {
            let reason = format!("element {row} of the diagonal is zero; use gmres, or exchange rows");
            Err(Error::InvalidArgument { operation, reason })
        }
        None => Ok(diagonal),
    }
}

pub(super) fn jacobi<T: Number>(system: &System<'_, T>, course: &mut Course<T>) -> Result<Stopped> {
    let diagonal = diagonal("jacobi", system)?;
    let mut r = vec![T::ZERO; diagonal.len()];
    loop {
        system.residual(&course.x, &mut r)?;
        if let Some(stopped) = course.note(norm(&r), system.options.iterations) {
            return Ok(stopped);
        }
        for ((x, &r), &d) in course.x.iter_mut().zip(&r).zip(&diagonal) {
            *x += r / d;
        }
    }
}

pub(super) fn gauss_seidel<T: Number>(system: &System<'_, T>, course: &mut Course<T>) -> Result<Stopped> {
    let diagonal = diagonal("gauss_seidel", system)?;
    let rows = system.a.rows::<T>()?;
    let mut r = vec![T::ZERO; diagonal.len()];
    loop {
        system.residual(&course.x, &mut r)?;
        if let Some(stopped) = course.note(norm(&r), system.options.iterations) {
            return Ok(stopped);
        }
        for (i, &d) in diagonal.iter().enumerate() {
            let (columns, values) = rows.row(i);
            let mut rest = system.b[i];
            for (&column, &value) in columns.iter().zip(values) {
                rest = rest - value * course.x[column as usize];
            }
            // The row's own element was subtracted with the others.
            course.x[i] += rest / d;
        }
    }
}

//! Conjugate gradients, plain and stabilised for matrices that are not symmetric.

use super::Number;
use super::solvers::{Course, Stopped, System, add_scaled, inner, norm};
use crate::error::Result;

pub(super) fn conjugate_gradient<T: Number>(
    system: &System<'_, T>,
    course: &mut Course<T>,
) -> Result<Stopped> {
    let limit = system.options.iterations;
    let mut r = vec![T::ZERO; course.x.len()];
    system.residual(&course.x, &mut r)?;
    let mut squared = inner(&r, &r);
    if let Some(stopped) = course.note(squared.sqrt(), limit) {
        return Ok(stopped);
    }
    let mut direction = r.clone();
    let mut image = vec![T::ZERO; r.len()];
    loop {
        system.product(&direction, &mut image)?;
        let curvature = inner(&direction, &image);
        if curvature <= 0.0 {
            return Ok(Stopped::Breakdown("the matrix is not positive definite"));
        }
        let step = squared / curvature;
        add_scaled(&mut course.x, step, &direction);
        add_scaled(&mut r, -step, &image);
        let before = std::mem::replace(&mut squared, inner(&r, &r));
        if let Some(stopped) = course.note(squared.sqrt(), limit) {
            return Ok(stopped);
        }
        let share = T::from_f64(squared / before);
        for (p, &r) in direction.iter_mut().zip(&r) {
            *p = r + share * *p;
        }
    }
}

pub(super) fn bicgstab<T: Number>(system: &System<'_, T>, course: &mut Course<T>) -> Result<Stopped> {
    let limit = system.options.iterations;
    let n = course.x.len();
    let mut r = vec![T::ZERO; n];
    system.residual(&course.x, &mut r)?;
    if let Some(stopped) = course.note(norm(&r), limit) {
        return Ok(stopped);
    }
    let shadow = r.clone();
    let (mut p, mut v, mut t) = (r.clone(), vec![T::ZERO; n], vec![T::ZERO; n]);
    let mut rho = inner(&shadow, &r);
    loop {
        system.product(&p, &mut v)?;
        let along = inner(&shadow, &v);
        if along == 0.0 {
            return Ok(Stopped::Breakdown("the direction's image is orthogonal to the first residual"));
        }
        let alpha = rho / along;
        add_scaled(&mut course.x, alpha, &p);
        add_scaled(&mut r, -alpha, &v);
        system.product(&r, &mut t)?;
        let length = inner(&t, &t);
        // A residual without image is zero already, or A is singular; both show in the residual.
        let omega = if length == 0.0 { 0.0 } else { inner(&t, &r) / length };
        add_scaled(&mut course.x, omega, &r);
        add_scaled(&mut r, -omega, &t);
        if let Some(stopped) = course.note(norm(&r), limit) {
            return Ok(stopped);
        }
        let next = inner(&shadow, &r);
        if omega == 0.0 || next == 0.0 {
            return Ok(Stopped::Breakdown("the residual is orthogonal to the first one, or has no image"));
        }
        let beta = (next / rho) * (alpha / omega);
        rho = next;
        for ((p, &v), &r) in p.iter_mut().zip(&v).zip(&r) {
            *p = r + T::from_f64(beta) * (*p - T::from_f64(omega) * v);
        }
    }
}

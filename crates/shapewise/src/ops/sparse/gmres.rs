//! Generalised minimal residuals: the best combination of the directions so far, kept triangular by rotations.

use super::Number;
use super::solvers::{Course, Stopped, System, add_scaled, inner, norm};
use crate::error::Result;

/// The directions since the last start, and how A maps them.
struct Space<T> {
    directions: Vec<Vec<T>>,
    /// Columns of the triangle.
    columns: Vec<Vec<f64>>,
    /// Cosine and sine of the rotation that removed each element below it.
    rotations: Vec<(f64, f64)>,
    /// The right-hand side under the rotations; the last one is the residual.
    right: Vec<f64>,
}

impl<T: Number> Space<T> {
    fn new(mut residual: Vec<T>, length: f64) -> Self {
        scale(&mut residual, 1.0 / length);
        Self { directions: vec![residual], columns: Vec::new(), rotations: Vec::new(), right: vec![length] }
    }

    /// One more direction from the image of the last; gives the residual, and whether there is a next direction.
    fn grow(&mut self, mut image: Vec<T>) -> (f64, bool) {
        let before = norm(&image);
        let mut column = Vec::with_capacity(self.directions.len() + 1);
        for direction in &self.directions {
            let share = inner(direction, &image);
            add_scaled(&mut image, -share, direction);
            column.push(share);
        }
        let length = norm(&image);
        for (i, &(cosine, sine)) in self.rotations.iter().enumerate() {
            let (a, b) = (column[i], column[i + 1]);
            (column[i], column[i + 1]) = (cosine * a + sine * b, cosine * b - sine * a);
        }
        let last = column.len() - 1;
        let whole = column[last].hypot(length);
        let (cosine, sine) = if whole == 0.0 { (0.0, 1.0) } else { (column[last] / whole, length / whole) };
        column[last] = whole;
        self.rotations.push((cosine, sine));
        self.columns.push(column);
        let right = self.right[last];
        self.right[last] = cosine * right;
        self.right.push(-sine * right);
        // What is left after all directions were removed is rounding when it is that small.
        let fresh = length > before * f64::EPSILON;
        if fresh {
            scale(&mut image, 1.0 / length);
            self.directions.push(image);
        }
        ((sine * right).abs(), fresh)
    }

    /// Adds the best combination to `x`; not possible if the triangle is singular.
    fn combine(&self, x: &mut [T]) -> bool {
        let n = self.columns.len();
        let mut shares = self.right[..n].to_vec();
        for i in (0..n).rev() {
            for j in i + 1..n {
                shares[i] -= self.columns[j][i] * shares[j];
            }
            if self.columns[i][i] == 0.0 {
                return false;
            }
            shares[i] /= self.columns[i][i];
        }
        for (share, direction) in shares.iter().zip(&self.directions) {
            add_scaled(x, *share, direction);
        }
        true
    }
}

fn scale<T: Number>(x: &mut [T], factor: f64) {
    let factor = T::from_f64(factor);
    for x in x.iter_mut() {
        *x = *x * factor;
    }
}

pub(super) fn gmres<T: Number>(system: &System<'_, T>, course: &mut Course<T>) -> Result<Stopped> {
    const SINGULAR: Stopped = Stopped::Breakdown("the matrix is singular along the directions tried");
    let limit = system.options.iterations;
    let n = course.x.len();
    let mut r = vec![T::ZERO; n];
    system.residual(&course.x, &mut r)?;
    if let Some(stopped) = course.note(norm(&r), limit) {
        return Ok(stopped);
    }
    loop {
        let before = norm(&r);
        if before == 0.0 {
            return Ok(Stopped::Converged);
        }
        let mut space = Space::new(r, before);
        let mut stopped = None;
        for step in 0..system.options.restart.min(n) {
            let mut image = vec![T::ZERO; n];
            system.product(&space.directions[step], &mut image)?;
            let (residual, fresh) = space.grow(image);
            stopped = course.note(residual, limit);
            if stopped.is_some() || !fresh {
                break;
            }
        }
        if !space.combine(&mut course.x) {
            return Ok(SINGULAR);
        }
        // The residual that was updated drifts from the true one by rounding; this is the true one.
        r = vec![T::ZERO; n];
        system.residual(&course.x, &mut r)?;
        let now = norm(&r);
        if let Some(last) = course.residuals.last_mut() {
            *last = now;
        }
        match stopped {
            Some(Stopped::Converged) if now > course.goal && now < before => {}
            Some(stopped) => {
                return Ok(if now <= course.goal { Stopped::Converged } else { stopped_short(stopped) });
            }
            None if now >= before => {
                return Ok(Stopped::Breakdown("a round of directions did not reduce the residual"));
            }
            None => {}
        }
        if course.residuals.len() > limit {
            return Ok(if now <= course.goal { Stopped::Converged } else { Stopped::Iterations });
        }
    }
}

/// Why it ends although the true residual is above the goal.
fn stopped_short(stopped: Stopped) -> Stopped {
    if stopped == Stopped::Converged {
        Stopped::Breakdown("rounding keeps the residual above the tolerance")
    } else {
        stopped
    }
}

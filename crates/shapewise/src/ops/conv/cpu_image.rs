//! Input and output of one image on their way to and from the innermost loops.
//!
//! A frame is the input with its padding, in the type that is computed in, its columns sorted by what is left of them
//! after division by the stride: whatever the stride, padding and layout, neighbouring outputs read neighbours.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::ops::Range;

use arrayvec::ArrayVec;

use super::cpu_interleave::{split2, split4};
use super::geometry::Geometry;
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;

/// Elements after a frame that vectors may read, whatever is there.
pub(super) const SLACK: usize = 64;

/// Where the elements of one channel lie in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub planes: usize,
    pub rows: usize,
    /// Columns of each phase.
    pub columns: usize,
    /// Different remainders of columns.
    phases: usize,
    /// Distance of columns that become neighbours.
    step: usize,
    stride: [usize; 3],
    reach: [usize; 3],
    dilation: [usize; 3],
}

impl Frame {
    /// The frame that outputs of these strides read.
    pub fn new(g: &Geometry) -> Self {
        let reach: [usize; 3] =
            std::array::from_fn(|axis| (g.kernel[axis].max(1) - 1) * g.dilation[axis] + 1);
        let span = |axis: usize| (g.output[axis] - 1) * g.stride[axis] + reach[axis];
        let step = g.stride[2];
        Self {
            planes: span(0),
            rows: span(1),
            columns: g.output[2] + (reach[2] - 1) / step,
            phases: step.min(reach[2]),
            step,
            stride: g.stride,
            reach,
            dilation: g.dilation,
        }
    }

    /// Elements of a row, all phases.
    pub fn pitch(&self) -> usize {
        self.phases * self.columns
    }

    /// Elements of a plane.
    pub fn plane(&self) -> usize {
        self.rows * self.pitch()
    }

    /// Elements of a channel.
    pub fn channel(&self) -> usize {
        self.planes * self.plane()
    }

    /// Where a column lies in its row.
    pub fn column(&self, column: usize) -> usize {
        column % self.step * self.columns + column / self.step
    }

    /// How far a weight's element is from that of the first weight.
    pub fn tap(&self, [z, y, x]: [usize; 3]) -> usize {
        z * self.dilation[0] * self.plane()
            + y * self.dilation[1] * self.pitch()
            + self.column(x * self.dilation[2])
    }

    /// The element that an output's first weight meets.
    pub fn output(&self, [z, y, x]: [usize; 3]) -> usize {
        z * self.stride[0] * self.plane() + y * self.stride[1] * self.pitch() + x
    }
}

/// Fills some rows of a channel's frame.
pub(super) struct Fill<'a, T: Real> {
    pub g: &'a Geometry,
    pub frame: &'a Frame,
    /// The first element of the channel.
    pub x: *const T,
    /// The first of the rows to fill, planes below one another.
    pub to: *mut T::Wide,
    pub rows: Range<usize>,
}

impl<T: Real> RealTask<T> for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (g, frame) = (self.g, self.frame);
        let columns = Columns::new(g, frame, S::LANES);
        let inside = |at: usize, axis: usize| {
            let place = at as isize - g.before[axis];
            (place >= 0 && place < g.input[axis] as isize).then_some(place * g.x[2 + axis])
        };
        let used = |at: usize, axis: usize| {
            frame.stride[axis] <= frame.reach[axis] || at % frame.stride[axis] < frame.reach[axis]
        };
        let mut to = self.to;
        let (mut z, mut y) = (self.rows.start / frame.rows, self.rows.start % frame.rows);
        for _ in self.rows {
            // SAFETY: the row is inside the input or left out, and the frame has a place for it.
            unsafe {
                match (inside(z, 0), inside(y, 1)) {
                    _ if !used(z, 0) || !used(y, 1) => {}
                    (Some(z), Some(y)) => fill_row(s, g, frame, &columns, self.x.wrapping_offset(z + y), to),
                    _ => clear(to, frame.pitch()),
                }
            }
            to = to.wrapping_add(frame.pitch());
            y += 1;
            if y == frame.rows {
                (z, y) = (z + 1, 0);
            }
        }
    }
}

/// Which columns of a row are padding and which are copied how: the same for every row.
struct Columns {
    /// Columns of all phases that are sorted in whole vectors.
    sorted: Range<usize>,
    /// Columns of the first phases that are inside the input.
    inside: ArrayVec<Range<usize>, KNOWN>,
}

/// Phases whose columns are worked out once; there are rarely more.
const KNOWN: usize = 4;

impl Columns {
    #[inline(always)]
    fn new(g: &Geometry, frame: &Frame, lanes: usize) -> Self {
        let step = frame.step;
        let start = ceiling(g.before[2], step as isize).max(0) as usize;
        let stop = (g.input[2] as isize + g.before[2]).max(0) as usize / step;
        let stop = stop.min(frame.columns);
        let sorts = g.x[4] == 1 && frame.phases == step && matches!(step, 2 | 4) && stop >= start + lanes;
        let inside = (0..frame.phases.min(KNOWN)).map(|phase| inside(g, frame, phase)).collect();
        Self { sorted: if sorts { start..stop } else { 0..0 }, inside }
    }
}

/// The columns of a phase that are not padding.
fn inside(g: &Geometry, frame: &Frame, phase: usize) -> Range<usize> {
    let (shift, step) = (g.before[2] - phase as isize, frame.step as isize);
    let first = ceiling(shift, step).clamp(0, frame.columns as isize);
    let end = ceiling(g.input[2] as isize + shift, step).clamp(first, frame.columns as isize);
    first as usize..end as usize
}

/// One row of the input to one row of the frame.
///
/// # Safety
/// `x` is the row's first element, `to` has room for a row of the frame.
#[inline(always)]
unsafe fn fill_row<T: Real, S: Vectors<T>>(
    s: S,
    g: &Geometry,
    frame: &Frame,
    columns: &Columns,
    x: *const T,
    to: *mut T::Wide,
) {
    if !columns.sorted.is_empty() {
        // SAFETY: the caller's promise.
        unsafe { fill_sorted(s, g, frame, &columns.sorted, x, to) };
    }
    for phase in 0..frame.phases {
        let inside = columns.inside.get(phase).cloned().unwrap_or_else(|| inside(g, frame, phase));
        let to = to.wrapping_add(phase * frame.columns);
        let step = frame.step as isize;
        let from = |column: usize| {
            x.wrapping_offset((column as isize * step + phase as isize - g.before[2]) * g.x[4])
        };
        let (start, stop) = (
            columns.sorted.start.clamp(inside.start, inside.end),
            columns.sorted.end.clamp(inside.start, inside.end),
        );
        // SAFETY: the columns between are inside the input, and all are inside the frame.
        unsafe {
            clear(to, inside.start);
            copy_line(s, from(inside.start), step * g.x[4], to.add(inside.start), start - inside.start);
            copy_line(s, from(stop), step * g.x[4], to.add(stop), inside.end - stop);
            clear(to.add(inside.end), frame.columns - inside.end);
        }
    }
}

/// Zeros; a few of them are sooner written than a call is made.
///
/// # Safety
/// `n` elements can be written.
#[inline(always)]
unsafe fn clear<W: Float>(to: *mut W, n: usize) {
    if n > 16 {
        // SAFETY: the caller's promise.
        return unsafe { to.write_bytes(0, n) };
    }
    for i in 0..n {
        // Volatile, because the compiler would make the call after all.
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write_volatile(W::ZERO) };
    }
}

/// Columns of two or four phases by whole vectors.
///
/// # Safety
/// As for [`fill_row`]; the columns are inside the input, and at least a vector.
#[inline(always)]
unsafe fn fill_sorted<T: Real, S: Vectors<T>>(
    s: S,
    g: &Geometry,
    frame: &Frame,
    columns: &Range<usize>,
    x: *const T,
    to: *mut T::Wide,
) {
    let step = frame.step;
    let mut column = columns.start;
    loop {
        let from = x.wrapping_offset((column * step) as isize - g.before[2]);
        let to = to.wrapping_add(column);
        // Written out: what the compiler does not inline is compiled without the instructions.
        // SAFETY: `step` vectors of the input are left, and a vector of each phase.
        unsafe {
            let (a, b) = (s.read(from), s.read(from.add(S::LANES)));
            if step == 2 {
                let [even, odd] = split2(s, [a, b]);
                s.store(to, even);
                s.store(to.add(frame.columns), odd);
            } else {
                let (c, d) = (s.read(from.add(2 * S::LANES)), s.read(from.add(3 * S::LANES)));
                let [a, b, c, d] = split4(s, [a, b, c, d]);
                s.store(to, a);
                s.store(to.add(frame.columns), b);
                s.store(to.add(2 * frame.columns), c);
                s.store(to.add(3 * frame.columns), d);
            }
        }
        if column + S::LANES == columns.end {
            return;
        }
        // The last vector may begin inside the one before it.
        column = (column + S::LANES).min(columns.end - S::LANES);
    }
}

fn ceiling(a: isize, b: isize) -> isize {
    a.div_euclid(b) + isize::from(a.rem_euclid(b) != 0)
}

/// Elements `apart` to neighbours, widened.
///
/// # Safety
/// `n` elements can be read and written.
#[inline(always)]
unsafe fn copy_line<T: Real, S: Vectors<T>>(s: S, from: *const T, apart: isize, to: *mut T::Wide, n: usize) {
    let mut i = 0;
    if apart == 1 {
        while i + S::LANES <= n {
            // SAFETY: a whole vector is left.
            unsafe { s.store(to.add(i), s.read(from.add(i))) };
            i += S::LANES;
        }
    }
    while i < n {
        // SAFETY: the element is inside both lines.
        unsafe { to.add(i).write((*from.offset(i as isize * apart)).widen()) };
        i += 1;
    }
}

/// Writes finished channels, which lie in the type that was computed in, to the output.
pub(super) struct Spread<'a, T: Real> {
    pub g: &'a Geometry,
    pub from: *const T::Wide,
    /// The first element of the channel in the output.
    pub y: *mut T,
}

impl<T: Real> RealTask<T> for Spread<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let g = self.g;
        let mut from = self.from;
        for z in 0..g.output[0] as isize {
            for y in 0..g.output[1] as isize {
                let to = self.y.wrapping_offset(z * g.y[2] + y * g.y[3]);
                // SAFETY: both rows have so many columns.
                unsafe { write_line::<T, S>(s, from, to, g.y[4], g.output[2]) };
                from = from.wrapping_add(g.output[2]);
            }
        }
    }
}

/// Neighbours to elements `apart`, rounded to their type.
///
/// # Safety
/// `n` elements can be read and written.
#[inline(always)]
unsafe fn write_line<T: Real, S: Vectors<T>>(s: S, from: *const T::Wide, to: *mut T, apart: isize, n: usize) {
    let mut i = 0;
    if apart == 1 {
        while i + S::LANES <= n {
            // SAFETY: a whole vector is left.
            unsafe { s.write(to.add(i), s.load(from.add(i))) };
            i += S::LANES;
        }
    }
    while i < n {
        // SAFETY: the element is inside both lines.
        unsafe { to.offset(i as isize * apart).write(T::narrow(*from.add(i))) };
        i += 1;
    }
}

/// The weights of some output channels, each in a row: input channels, then depth, height, width. Gives the first row
/// and the distance of rows; they are gathered only where they are not in rows already.
///
/// # Safety
/// `w` is the first channel's first weight, and `to` has room for all of them.
pub(super) unsafe fn weight_rows<T: Real>(
    g: &Geometry,
    w: *const T,
    rows: usize,
    to: *mut T::Wide,
) -> (*const T::Wide, isize) {
    if size_of::<T>() == size_of::<T::Wide>() && weights_in_a_row(g) {
        return (w.cast::<T::Wide>(), g.w[1]);
    }
    let [kd, kh, kw] = g.kernel.map(|k| k as isize);
    let mut at = 0;
    for row in 0..rows as isize {
        for c in 0..g.c as isize {
            for (z, y) in (0..kd).flat_map(|z| (0..kh).map(move |y| (z, y))) {
                let line = w.wrapping_offset(row * g.w[1] + c * g.w[2] + z * g.w[3] + y * g.w[4]);
                for x in 0..kw {
                    // SAFETY: channels and tap exist, and have their place.
                    unsafe { to.add(at).write((*line.offset(x * g.w[5])).widen()) };
                    at += 1;
                }
            }
        }
    }
    (to.cast_const(), (g.c * g.taps()) as isize)
}

/// Whether the weights of an output channel are neighbours already.
fn weights_in_a_row(g: &Geometry) -> bool {
    let mut apart = 1;
    for (axis, size) in [(5, g.kernel[2]), (4, g.kernel[1]), (3, g.kernel[0]), (2, g.c)] {
        if size > 1 && g.w[axis] != apart {
            return false;
        }
        apart *= size as isize;
    }
    true
}

/// Whether the outputs of a channel are neighbours.
pub(super) fn outputs_in_a_row(g: &Geometry) -> bool {
    let mut apart = 1;
    for axis in (0..3).rev() {
        if g.output[axis] > 1 && g.y[2 + axis] != apart {
            return false;
        }
        apart *= g.output[axis] as isize;
    }
    true
}

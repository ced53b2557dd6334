//! The loops of the recipes: rows of contiguous results from contiguous or repeated arguments.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::formula::{Formula, Recipe, Visitor};
use crate::backends::cpu::real::{prefetch, prefetch_write};
use crate::backends::cpu::simd::math::Scalar;
use crate::backends::cpu::simd::{Isa, Lanes, Simd, SimdTask};
use crate::ops::{Knob, Parameters};

/// Rows of results and of arguments; strides are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines<T> {
    /// Each argument's first element; those beyond the arity are never read.
    pub(super) inputs: [*const T; 3],
    /// From row to row, for each argument.
    pub(super) input_steps: [isize; 3],
    /// Bit k: argument k repeats one element along a row.
    pub(super) repeated: u8,
    pub(super) output: *mut T,
    pub(super) output_step: isize,
    pub(super) rows: usize,
    pub(super) length: usize,
    /// Whether results go past the caches.
    pub(super) stream: bool,
    /// What of far lines is asked for ahead.
    pub(super) ahead: Ahead,
}

/// What of far lines is asked for before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    Nothing,
    /// Results, which are brought in before they are written.
    Results,
    /// Results and arguments, where the CPU's own prefetching comes late.
    All,
}

impl Ahead {
    /// By the tunable.
    pub(super) fn of(parameters: &Parameters) -> Self {
        match parameters.get(Knob::Ahead) {
            Some(1) => Self::Results,
            Some(2) => Self::All,
            _ => Self::Nothing,
        }
    }
}

/// The loop of a recipe, compiled for every instruction set.
///
/// # Safety
/// Every argument may be read and the output written at all rows × length positions, the output overlaps no argument except
/// exactly, and the arguments that repeat are those that the loop was picked for.
pub(super) type Loop<T> = unsafe fn(Isa, &Lines<T>);

/// An element type that lines are made of.
pub(super) trait LineElement: Scalar {
    /// The loop of a recipe for lines that repeat these arguments, for which [`Recipe::has_loop`] holds.
    fn pick(recipe: Recipe, repeated: u8) -> Loop<Self>;
}

/// Picks the loop for these repeated arguments.
struct Pick {
    repeated: u8,
}

/// Bytes of lines that lie beyond the first-level cache with their arguments. There the best loop depends on the CPU: 100 000 additions take 19.8 µs with
/// registers of 512 bits on an Ice Lake core and 17.2 µs with 256, 8.4 and 8.5 µs on a Zen 5.
pub(super) const FAR: usize = 32 << 10;

/// Bytes that results of far lines are asked for before they are written. 100 000 additions take 0.97 of the time in a bare loop on an Emerald Rapids core and
/// 1.09 of it on a Zen 5, where 400 000 take 0.83.
const AHEAD: usize = 1 << 10;

/// The same where arguments are asked for as well: in a loop of C on one Cascade Lake core 100 000 additions take 0.91 to 0.97 of a bare loop's
/// time, and half the distance does as well.
const ALL_AHEAD: usize = 512;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A loop that waits for memory more than for arithmetic.
fn light<'a, T, K: SimdTask<Output = ()> + From<&'a Lines<T>>>(isa: Isa, lines: &'a Lines<T>) {
    let far = lines.rows.saturating_mul(lines.length).saturating_mul(2 * size_of::<T>()) > FAR;
    // Stores past the caches fill a whole line at once; asking pays only where wide registers do not.
    if far && lines.ahead != Ahead::Nothing && !lines.stream {
        isa.run_narrow(K::from(lines));
    } else {
        isa.run(K::from(lines));
    }
}

/// A loop that waits for arithmetic.
fn heavy<'a, T: 'a, K: SimdTask<Output = ()> + From<&'a Lines<T>>>(isa: Isa, lines: &'a Lines<T>) {
    isa.run(K::from(lines));
}

/// Which arguments repeat is found out at run time: beside slow functions that costs nothing.
const ANY: u8 = u8::MAX;

/// One formula with its repeated arguments known to the compiler.
struct Task<'a, T, F, const REPEATED: u8> {
    lines: &'a Lines<T>,
    formula: PhantomData<F>,
}

impl<'a, T, F, const REPEATED: u8> From<&'a Lines<T>> for Task<'a, T, F, REPEATED> {
    #[inline]
    fn from(lines: &'a Lines<T>) -> Self {
        Self { lines, formula: PhantomData }
    }
}

macro_rules! line_element {
    ($t:ident) => {
        impl LineElement for $t {
            fn pick(recipe: Recipe, repeated: u8) -> Loop<$t> {
                debug_assert!(recipe.has_loop(repeated));
                recipe.visit::<$t, _>(Pick { repeated })
            }
        }

        // Each method names only the loops that it needs, so that no others are compiled.
        impl Visitor<$t> for Pick {
            type Output = Loop<$t>;

            fn heavy<F: Formula<$t>>(self) -> Loop<$t> {
                |isa, lines| heavy::<_, Task<'_, $t, F, ANY>>(isa, lines)
            }
            fn unary<F: Formula<$t>>(self) -> Loop<$t> {
                |isa, lines| light::<_, Task<'_, $t, F, 0>>(isa, lines)
            }
            fn commuting<F: Formula<$t>>(self) -> Loop<$t> {
                match self.repeated {
                    0 => |isa, lines| light::<_, Task<'_, $t, F, 0>>(isa, lines),
                    _ => |isa, lines| light::<_, Task<'_, $t, F, 0b10>>(isa, lines),
                }
            }
            fn binary<F: Formula<$t>>(self) -> Loop<$t> {
                match self.repeated {
                    0 => |isa, lines| light::<_, Task<'_, $t, F, 0>>(isa, lines),
                    0b01 => |isa, lines| light::<_, Task<'_, $t, F, 0b01>>(isa, lines),
                    _ => |isa, lines| light::<_, Task<'_, $t, F, 0b10>>(isa, lines),
                }
            }
            fn ternary<F: Formula<$t>>(self) -> Loop<$t> {
                match self.repeated {
                    0 => |isa, lines| light::<_, Task<'_, $t, F, 0>>(isa, lines),
                    0b100 => |isa, lines| light::<_, Task<'_, $t, F, 0b100>>(isa, lines),
                    _ => |isa, lines| light::<_, Task<'_, $t, F, 0b110>>(isa, lines),
                }
            }
            fn constants<F: Formula<$t>>(self) -> Loop<$t> {
                |isa, lines| light::<_, Task<'_, $t, F, 0b110>>(isa, lines)
            }
        }

        impl<F: Formula<$t>, const REPEATED: u8> SimdTask for Task<'_, $t, F, REPEATED> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                // SAFETY: the caller of the loop vouched for the lines.
                unsafe { all_rows::<$t, S, F, REPEATED>(s, self.lines) }
            }
        }
    };
}
line_element!(f32);
line_element!(f64);

/// # Safety
/// As for [`Loop`].
#[inline(always)]
unsafe fn all_rows<T: Scalar, S: Lanes<T>, F: Formula<T>, const REPEATED: u8>(s: S, lines: &Lines<T>) {
    let [mut a, mut b, mut c] = lines.inputs;
    let mut out = lines.output;
    for _ in 0..lines.rows {
        // SAFETY: the pointers are at the starts of rows that the caller vouched for.
        unsafe {
            if F::LIGHT && lines.stream {
                row::<T, S, F, REPEATED, true>(
                    s,
                    [a, b, c],
                    out,
                    lines.length,
                    lines.repeated,
                    Ahead::Nothing,
                );
            } else {
                row::<T, S, F, REPEATED, false>(s, [a, b, c], out, lines.length, lines.repeated, lines.ahead);
            }
        }
        a = a.wrapping_offset(lines.input_steps[0]);
        b = b.wrapping_offset(lines.input_steps[1]);
        c = c.wrapping_offset(lines.input_steps[2]);
        out = out.wrapping_offset(lines.output_step);
    }
    if F::LIGHT && lines.stream {
        s.fence();
    }
}

/// # Safety
/// As for [`Loop`], for one row.
#[inline(always)]
pub(super) unsafe fn row<T: Scalar, S: Lanes<T>, F: Formula<T>, const REPEATED: u8, const STREAM: bool>(
    s: S,
    x: [*const T; 3],
    out: *mut T,
    length: usize,
    repeated: u8,
    ahead: Ahead,
) {
    let lanes = S::LANES;
    if length == 0 {
        return;
    }
    // SAFETY: every index below is less than `length`, and repeated arguments have their one element.
    unsafe {
        let repeated = if REPEATED == ANY { repeated } else { REPEATED };
        let splats = [
            repeat::<T, S, F>(s, x[0], 0, repeated),
            repeat::<T, S, F>(s, x[1], 1, repeated),
            repeat::<T, S, F>(s, x[2], 2, repeated),
        ];
        let mut i = 0;
        if STREAM {
            // To the first aligned register; the caller streams only what is aligned to an element.
            i = (out.addr().wrapping_neg() / size_of::<T>() % lanes).min(length);
            if i > 0 {
                let y = F::apply(s, some::<T, S, F>(s, x, splats, repeated, 0, i));
                s.store_first(out, y, i);
            }
        }
        let far = F::LIGHT && !STREAM && length * size_of::<T>() > FAR / 2;
        if far && ahead == Ahead::Results {
            i = fours::<T, S, F, STREAM, AHEAD, 0>(s, x, splats, repeated, out, i, length);
        } else if far && ahead == Ahead::All {
            i = fours::<T, S, F, STREAM, ALL_AHEAD, ALL_AHEAD>(s, x, splats, repeated, out, i, length);
        } else if F::LIGHT {
            i = fours::<T, S, F, STREAM, 0, 0>(s, x, splats, repeated, out, i, length);
        }
        while !F::LIGHT && i < length {
            // One copy of a long formula for whole registers and the rest.
            let n = (length - i).min(lanes);
            let values = if n == lanes {
                full::<T, S, F>(s, x, splats, repeated, i)
            } else {
                some::<T, S, F>(s, x, splats, repeated, i, n)
            };
            s.store_first(out.add(i), F::apply(s, values), n);
            i += n;
        }
        while F::LIGHT && length - i >= lanes {
            let y = F::apply(s, full::<T, S, F>(s, x, splats, repeated, i));
            s.store(out.add(i), y);
            i += lanes;
        }
        if F::LIGHT && i < length {
            let y = F::apply(s, some::<T, S, F>(s, x, splats, repeated, i, length - i));
            s.store_first(out.add(i), y, length - i);
        }
    }
}

/// Four registers at a time from index `from` on, where it ended; results and arguments are asked for so many bytes ahead, or not.
///
/// # Safety
/// As for [`Loop`], for one row.
#[allow(clippy::too_many_arguments)] // a loop's state, in registers
#[inline(always)]
unsafe fn fours<
    T: Scalar,
    S: Lanes<T>,
    F: Formula<T>,
    const STREAM: bool,
    const RESULTS: usize,
    const ARGUMENTS: usize,
>(
    s: S,
    x: [*const T; 3],
    splats: [S::V; 3],
    repeated: u8,
    out: *mut T,
    from: usize,
    length: usize,
) -> usize {
    let (lanes, step) = (S::LANES, const { 4 * S::LANES });
    // An end that the index meets: with a sum to compare, the compiler keeps twice as many registers up to date.
    let end = from + (length - from) / step * step;
    let mut i = from;
    while i != end {
        // SAFETY: `end` is at most `length`.
        unsafe {
            for line in 0..const { (4 * S::LANES * size_of::<T>()).div_ceil(LINE) } {
                if RESULTS > 0 {
                    prefetch_write(out.add(i).wrapping_byte_add(RESULTS + LINE * line));
                }
                for (k, x) in x.iter().enumerate().take(F::ARITY) {
                    if ARGUMENTS > 0 && repeated >> k & 1 == 0 {
                        prefetch(x.add(i).wrapping_byte_add(ARGUMENTS + LINE * line));
                    }
                }
            }
            let y0 = F::apply(s, full::<T, S, F>(s, x, splats, repeated, i));
            let y1 = F::apply(s, full::<T, S, F>(s, x, splats, repeated, i + lanes));
            let y2 = F::apply(s, full::<T, S, F>(s, x, splats, repeated, i + 2 * lanes));
            let y3 = F::apply(s, full::<T, S, F>(s, x, splats, repeated, i + 3 * lanes));
            put::<T, S, STREAM>(s, out.add(i), y0);
            put::<T, S, STREAM>(s, out.add(i + lanes), y1);
            put::<T, S, STREAM>(s, out.add(i + 2 * lanes), y2);
            put::<T, S, STREAM>(s, out.add(i + 3 * lanes), y3);
        }
        i += step;
    }
    end
}

/// Argument k in all lanes if it is a repeated one.
///
/// # Safety
/// A repeated argument may be read.
#[inline(always)]
unsafe fn repeat<T: Scalar, S: Lanes<T>, F: Formula<T>>(s: S, x: *const T, k: usize, repeated: u8) -> S::V {
    if k < F::ARITY && repeated >> k & 1 == 1 {
        // SAFETY: the caller vouched for the element; it may lie at any address.
        s.splat(unsafe { x.read_unaligned() })
    } else {
        s.splat(T::ZERO)
    }
}

/// One register of each argument from index i on.
///
/// # Safety
/// Arguments may be read up to i + LANES.
#[inline(always)]
unsafe fn full<T: Scalar, S: Lanes<T>, F: Formula<T>>(
    s: S,
    x: [*const T; 3],
    mut values: [S::V; 3],
    repeated: u8,
    i: usize,
) -> [S::V; 3] {
    // SAFETY: the caller vouched for LANES elements from i on in each argument that is not repeated.
    unsafe {
        if repeated & 1 == 0 {
            values[0] = s.load(x[0].add(i));
        }
        if F::ARITY > 1 && repeated & 2 == 0 {
            values[1] = s.load(x[1].add(i));
        }
        if F::ARITY > 2 && repeated & 4 == 0 {
            values[2] = s.load(x[2].add(i));
        }
    }
    values
}

/// The first n lanes of each argument from index i on.
///
/// # Safety
/// Arguments may be read up to i + n.
#[inline(always)]
unsafe fn some<T: Scalar, S: Lanes<T>, F: Formula<T>>(
    s: S,
    x: [*const T; 3],
    mut values: [S::V; 3],
    repeated: u8,
    i: usize,
    n: usize,
) -> [S::V; 3] {
    // SAFETY: the caller vouched for n elements from i on in each argument that is not repeated.
    unsafe {
        if repeated & 1 == 0 {
            values[0] = s.load_first(x[0].add(i), n);
        }
        if F::ARITY > 1 && repeated & 2 == 0 {
            values[1] = s.load_first(x[1].add(i), n);
        }
        if F::ARITY > 2 && repeated & 4 == 0 {
            values[2] = s.load_first(x[2].add(i), n);
        }
    }
    values
}

/// Writes one register, past the caches if it is streamed.
///
/// # Safety
/// `at` may be written, and is aligned to a register if it is streamed.
#[inline(always)]
unsafe fn put<T: Scalar, S: Lanes<T>, const STREAM: bool>(s: S, at: *mut T, v: S::V) {
    // SAFETY: the caller's.
    unsafe {
        if STREAM {
            s.stream(at, v);
        } else {
            s.store(at, v);
        }
    }
}

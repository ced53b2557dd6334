//! What an instruction set offers to algorithms.
use super::{Float, halves};
use half::{bf16, f16};

/// The most lanes any instruction set has (`f32` on AVX-512).
pub const MAX_LANES: usize = 16;

/// Vectors of `T` on one instruction set. The token `self` proves that the instructions exist.
///
/// Comparisons with NaN are false (except [`ne`](Lanes::ne)), as for scalars.
pub trait Lanes<T: Float>: Copy {
    /// One register of lanes.
    type V: Copy;
    /// One truth value per lane.
    type M: Copy;
    /// Lanes in a register.
    const LANES: usize;
    /// Whether `mul_add` rounds once.
    const FUSED: bool = true;
    /// Whether reading and writing the first few lanes costs no more than all of them.
    const MASKS: bool = false;

    /// Every lane `x`.
    fn splat(self, x: T) -> Self::V;
    /// Reads `LANES` elements, any alignment.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` elements.
    unsafe fn load(self, at: *const T) -> Self::V;
    /// Reads the first `n <= LANES` elements; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `n` elements.
    unsafe fn load_first(self, at: *const T, n: usize) -> Self::V;
    /// Lane `i` is `from[at[i]]`.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` indices, and `from` for reading the element at each.
    #[inline(always)]
    unsafe fn pick(self, from: *const T, at: *const u32) -> Self::V {
        let mut picked = [T::ZERO; MAX_LANES];
        for (i, x) in picked.iter_mut().take(Self::LANES).enumerate() {
            // SAFETY: the caller's promise.
            *x = unsafe { *from.add(*at.add(i) as usize) };
        }
        // SAFETY: `picked` has at least LANES elements.
        unsafe { self.load(picked.as_ptr()) }
    }
    /// As [`pick`](Lanes::pick) for the first half of the lanes; the others are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES / 2` indices, and `from` for reading the element at each.
    #[inline(always)]
    unsafe fn pick_half(self, from: *const T, at: *const u32) -> Self::V {
        let mut picked = [T::ZERO; MAX_LANES];
        for (i, x) in picked.iter_mut().take(Self::LANES / 2).enumerate() {
            // SAFETY: the caller's promise.
            *x = unsafe { *from.add(*at.add(i) as usize) };
        }
        // SAFETY: `picked` has at least LANES elements.
        unsafe { self.load(picked.as_ptr()) }
    }
    /// Writes `LANES` elements, any alignment.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements.
    unsafe fn store(self, at: *mut T, v: Self::V);
    /// Writes the first `n <= LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for writing `n` elements.
    unsafe fn store_first(self, at: *mut T, v: Self::V, n: usize);
    /// Writes `LANES` elements past the caches where the CPU can; call [`fence`](Lanes::fence) after the last.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements and aligned to the size of a register.
    unsafe fn stream(self, at: *mut T, v: Self::V);
    /// Makes streamed elements visible to other threads before anything written later.
    fn fence(self);

    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once except on [`Portable`](super::Portable).
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once except on [`Portable`](super::Portable).
    fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Square root.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`: the cheapest minimum; with a NaN in either it is `b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: the cheapest maximum; with a NaN in either it is `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// The next integer towards minus infinity.
    fn floor(self, a: Self::V) -> Self::V;

    /// Bitwise `a & b`.
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise `a | b`.
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Bitwise `a ^ b`.
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// The bits of `a` and `b` added as integers, wrapping.
    fn add_bits(self, a: Self::V, b: Self::V) -> Self::V;
    /// The bits shifted left by the length of the mantissa: the lowest bits become the exponent.
    fn shl_mantissa(self, a: Self::V) -> Self::V;
    /// The bits shifted right by the length of the mantissa, zeros from the left.
    fn shr_mantissa(self, a: Self::V) -> Self::V;

    /// `a < b`
    fn lt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a <= b`
    fn le(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a == b`
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a != b`, true when either is NaN.
    fn ne(self, a: Self::V, b: Self::V) -> Self::M;
    /// `m ? a : b` in each lane.
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V;
    /// Both.
    fn mask_and(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn mask_or(self, a: Self::M, b: Self::M) -> Self::M;
    /// The opposite.
    fn mask_not(self, a: Self::M) -> Self::M;
    /// One bit per lane, the first lane lowest.
    fn mask_bits(self, m: Self::M) -> u32;
    /// Whether any lane is true.
    #[inline(always)]
    fn any(self, m: Self::M) -> bool {
        self.mask_bits(m) != 0
    }
    /// Whether all lanes are true.
    #[inline(always)]
    fn all(self, m: Self::M) -> bool {
        self.mask_bits(m) == (1 << Self::LANES) - 1
    }

    /// Which of LANES neighbours each lane holds after [`unzip`](Lanes::unzip); each lane's mirror image holds the mirrored one.
    const ORDER: [u8; MAX_LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    /// The even and the odd elements of `a` followed by `b`, both in the order of [`ORDER`](Lanes::ORDER).
    #[inline(always)]
    fn unzip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        let (mut all, mut even, mut odd) =
            ([T::ZERO; 2 * MAX_LANES], [T::ZERO; MAX_LANES], [T::ZERO; MAX_LANES]);
        // SAFETY: the arrays have at least LANES elements from where they are written and read.
        unsafe {
            self.store(all.as_mut_ptr(), a);
            self.store(all.as_mut_ptr().add(Self::LANES), b);
            for i in 0..Self::LANES {
                (even[i], odd[i]) = (all[2 * i], all[2 * i + 1]);
            }
            (self.load(even.as_ptr()), self.load(odd.as_ptr()))
        }
    }
    /// The inverse of [`unzip`](Lanes::unzip).
    #[inline(always)]
    fn zip(self, even: Self::V, odd: Self::V) -> (Self::V, Self::V) {
        let (mut all, mut a, mut b) = ([T::ZERO; 2 * MAX_LANES], [T::ZERO; MAX_LANES], [T::ZERO; MAX_LANES]);
        // SAFETY: as in `unzip`.
        unsafe {
            self.store(a.as_mut_ptr(), even);
            self.store(b.as_mut_ptr(), odd);
            for i in 0..Self::LANES {
                (all[2 * i], all[2 * i + 1]) = (a[i], b[i]);
            }
            (self.load(all.as_ptr()), self.load(all.as_ptr().add(Self::LANES)))
        }
    }
    /// Turns LANES vectors as the rows of a matrix into its columns.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    fn transpose(self, rows: &mut [Self::V]) {
        let rows = &mut rows[..Self::LANES];
        // Halves change places at each distance.
        let mut distance = Self::LANES / 2;
        while distance > 0 {
            let mut low = [T::ZERO; MAX_LANES];
            for (i, low) in low.iter_mut().enumerate() {
                *low = if i & distance == 0 { T::ONE } else { T::ZERO };
            }
            // SAFETY: the array has LANES elements or more.
            let low = self.eq(unsafe { self.load(low.as_ptr()) }, self.splat(T::ONE));
            for i in 0..Self::LANES {
                if i & distance == 0 {
                    let (x, y) = (rows[i], rows[i + distance]);
                    rows[i] = self.select(low, x, self.butterfly(y, distance));
                    rows[i + distance] = self.select(low, self.butterfly(x, distance), y);
                }
            }
            distance /= 2;
        }
    }

    /// Reads LANES rows of LANES elements, `step` elements apart, as columns: vector `j` holds element `j` of every row, the rows
    /// in the order of [`ORDER`](Lanes::ORDER).
    ///
    /// # Safety
    /// Every row is valid for reading `LANES` elements.
    ///
    /// # Panics
    /// If there are fewer than LANES columns.
    #[inline(always)]
    unsafe fn load_turned(self, from: *const T, step: usize, columns: &mut [Self::V]) {
        for (column, &row) in columns[..Self::LANES].iter_mut().zip(&Self::ORDER) {
            // SAFETY: the caller's promise; the order names every row once.
            *column = unsafe { self.load(from.add(step * usize::from(row))) };
        }
        self.transpose(columns);
    }

    /// Reads LANES elements, `offset` behind each of LANES places, as columns: vector `j` holds element `j` of every place.
    ///
    /// # Safety
    /// Every place is valid for reading `LANES` elements from `offset` on.
    ///
    /// # Panics
    /// If there are fewer than LANES columns.
    #[inline(always)]
    unsafe fn load_columns(self, places: &[*const T; MAX_LANES], offset: usize, columns: &mut [Self::V]) {
        for i in 0..Self::LANES {
            // SAFETY: the caller's promise.
            columns[i] = unsafe { self.load(places[i].wrapping_add(offset)) };
        }
        self.transpose(columns);
    }

    /// Lane `i` of the result is lane `i ^ distance` of `a`; `distance` is a power of two below `LANES`.
    fn butterfly(self, a: Self::V, distance: usize) -> Self::V;
    /// The first lane.
    fn first(self, a: Self::V) -> T;
    /// The same vector, computed before anything that the source reads later. Compilers like to gather reads at the start, where
    /// there may be more vectors than registers.
    #[inline(always)]
    fn settled(self, a: Self::V) -> Self::V {
        a
    }
    /// Runs an innermost loop, as a function of its own where that gives it the registers it needs.
    #[inline(always)]
    fn apart<K: Apart<T>>(self, task: K) {
        task.run(self);
    }

    /// `-a`
    #[inline(always)]
    fn neg(self, a: Self::V) -> Self::V {
        self.xor(a, self.splat(-T::ZERO))
    }
    /// `a` without its sign.
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        let magnitude = T::from_bits64(!(-T::ZERO).to_bits64());
        self.and(a, self.splat(magnitude))
    }
    /// The size of `a` with the sign of `sign`.
    #[inline(always)]
    fn copysign(self, a: Self::V, sign: Self::V) -> Self::V {
        self.or(self.abs(a), self.and(sign, self.splat(-T::ZERO)))
    }
    /// The smaller one; NaN if either is.
    #[inline(always)]
    fn min_nan(self, a: Self::V, b: Self::V) -> Self::V {
        self.select(self.eq(a, a), self.min(a, b), a)
    }
    /// The larger one; NaN if either is.
    #[inline(always)]
    fn max_nan(self, a: Self::V, b: Self::V) -> Self::V {
        self.select(self.eq(a, a), self.max(a, b), a)
    }
    /// The sum of all lanes, added pairwise.
    #[inline(always)]
    fn reduce_add(self, a: Self::V) -> T {
        fold(self, a, Self::add)
    }
    /// The sums of all lanes of four vectors, which are added together on the way.
    #[inline(always)]
    fn reduce_add_four(self, a: [Self::V; 4]) -> [T; 4] {
        [self.reduce_add(a[0]), self.reduce_add(a[1]), self.reduce_add(a[2]), self.reduce_add(a[3])]
    }
    /// The product of all lanes, multiplied pairwise.
    #[inline(always)]
    fn reduce_mul(self, a: Self::V) -> T {
        fold(self, a, Self::mul)
    }
    /// The smallest lane; NaN if any is.
    #[inline(always)]
    fn reduce_min(self, a: Self::V) -> T {
        fold(self, a, Self::min_nan)
    }
    /// The largest lane; NaN if any is.
    #[inline(always)]
    fn reduce_max(self, a: Self::V) -> T {
        fold(self, a, Self::max_nan)
    }

    /// 2ⁿ for integral `n` whose power is a normal number (−126 to 127, −1022 to 1023).
    #[inline(always)]
    fn pow2i(self, n: Self::V) -> Self::V {
        // Adding 2^mantissa puts the integer n + bias into the lowest bits.
        let magic = pow2::<T>(T::MANTISSA_BITS) + T::from_f64(f64::from(T::BIAS));
        self.shl_mantissa(self.add(n, self.splat(magic)))
    }
    /// `a · 2ⁿ` for integral `n` up to twice the exponent's range, rounded once: overflow gives infinity, underflow
    /// a denormal or zero.
    #[inline(always)]
    fn scale(self, a: Self::V, n: Self::V) -> Self::V {
        // Adding and subtracting a large number rounds to an integer.
        let rounder = self.splat(T::from_f64(1.5) * pow2::<T>(T::MANTISSA_BITS));
        let half = self.sub(self.mul_add(n, self.splat(T::from_f64(0.5)), rounder), rounder);
        self.mul(self.mul(a, self.pow2i(half)), self.pow2i(self.sub(n, half)))
    }
    /// Splits positive normal numbers into (m, e): `a = m · 2ᵉ` with 1 ≤ m < 2.
    #[inline(always)]
    fn split(self, a: Self::V) -> (Self::V, Self::V) {
        let magic = pow2::<T>(T::MANTISSA_BITS);
        let exponent = self.or(self.shr_mantissa(a), self.splat(magic));
        let exponent = self.sub(exponent, self.splat(magic + T::from_f64(f64::from(T::BIAS))));
        let mantissa = T::from_bits64((1 << T::MANTISSA_BITS) - 1);
        (self.or(self.and(a, self.splat(mantissa)), self.splat(T::ONE)), exponent)
    }
}

/// 2ⁿ for small n.
#[inline(always)]
fn pow2<T: Float>(n: u32) -> T {
    T::from_f64((1_u64 << n) as f64)
}

/// Combines all lanes by `f`, in a tree.
#[inline(always)]
fn fold<T: Float, S: Lanes<T>>(s: S, mut a: S::V, f: impl Fn(S, S::V, S::V) -> S::V) -> T {
    let mut distance = S::LANES / 2;
    while distance > 0 {
        a = f(s, a, s.butterfly(a, distance));
        distance /= 2;
    }
    s.first(a)
}

/// Reading and writing 16-bit floats as `f32` lanes. Writing rounds to the nearest, ties to even, and keeps NaN.
pub trait HalfLanes: Lanes<f32> {
    /// Reads `LANES` halves.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` elements.
    #[inline(always)]
    unsafe fn load_f16(self, at: *const f16) -> Self::V {
        let mut wide = [0.0_f32; MAX_LANES];
        for (i, x) in wide.iter_mut().take(Self::LANES).enumerate() {
            // SAFETY: i < LANES elements may be read.
            *x = halves::widen(unsafe { at.add(i).read() });
        }
        // SAFETY: `wide` has at least LANES elements.
        unsafe { self.load(wide.as_ptr()) }
    }
    /// Writes `LANES` halves.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements.
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16, v: Self::V) {
        let mut wide = [0.0_f32; MAX_LANES];
        // SAFETY: `wide` has at least LANES elements.
        unsafe { self.store(wide.as_mut_ptr(), v) };
        for (i, x) in wide.iter().take(Self::LANES).enumerate() {
            // SAFETY: i < LANES elements may be written.
            unsafe { at.add(i).write(halves::narrow(*x)) };
        }
    }
    /// Reads `LANES` bfloats.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` elements.
    #[inline(always)]
    unsafe fn load_bf16(self, at: *const bf16) -> Self::V {
        let mut wide = [0.0_f32; MAX_LANES];
        for (i, x) in wide.iter_mut().take(Self::LANES).enumerate() {
            // SAFETY: i < LANES elements may be read.
            *x = unsafe { at.add(i).read() }.to_f32();
        }
        // SAFETY: `wide` has at least LANES elements.
        unsafe { self.load(wide.as_ptr()) }
    }
    /// Writes `LANES` bfloats.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements.
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16, v: Self::V) {
        let mut wide = [0.0_f32; MAX_LANES];
        // SAFETY: `wide` has at least LANES elements.
        unsafe { self.store(wide.as_mut_ptr(), v) };
        for (i, x) in wide.iter().take(Self::LANES).enumerate() {
            // SAFETY: i < LANES elements may be written.
            unsafe { at.add(i).write(bf16::from_f32(*x)) };
        }
    }
    /// Reads the first `n <= LANES` halves; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `n` elements.
    #[inline(always)]
    unsafe fn load_f16_first(self, at: *const f16, n: usize) -> Self::V {
        let mut some = [f16::ZERO; MAX_LANES];
        // SAFETY: n <= LANES elements may be read, and `some` has room for them.
        unsafe { std::ptr::copy_nonoverlapping(at, some.as_mut_ptr(), n.min(Self::LANES)) };
        // SAFETY: `some` has at least LANES elements.
        unsafe { self.load_f16(some.as_ptr()) }
    }
    /// Writes the first `n <= LANES` halves.
    ///
    /// # Safety
    /// `at` is valid for writing `n` elements.
    #[inline(always)]
    unsafe fn store_f16_first(self, at: *mut f16, v: Self::V, n: usize) {
        let mut all = [f16::ZERO; MAX_LANES];
        // SAFETY: `all` has at least LANES elements.
        unsafe { self.store_f16(all.as_mut_ptr(), v) };
        // SAFETY: n <= LANES elements may be written, and `all` has them.
        unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), at, n.min(Self::LANES)) };
    }
    /// Reads the first `n <= LANES` bfloats; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `n` elements.
    #[inline(always)]
    unsafe fn load_bf16_first(self, at: *const bf16, n: usize) -> Self::V {
        let mut some = [bf16::ZERO; MAX_LANES];
        // SAFETY: n <= LANES elements may be read, and `some` has room for them.
        unsafe { std::ptr::copy_nonoverlapping(at, some.as_mut_ptr(), n.min(Self::LANES)) };
        // SAFETY: `some` has at least LANES elements.
        unsafe { self.load_bf16(some.as_ptr()) }
    }
    /// Writes the first `n <= LANES` bfloats.
    ///
    /// # Safety
    /// `at` is valid for writing `n` elements.
    #[inline(always)]
    unsafe fn store_bf16_first(self, at: *mut bf16, v: Self::V, n: usize) {
        let mut all = [bf16::ZERO; MAX_LANES];
        // SAFETY: `all` has at least LANES elements.
        unsafe { self.store_bf16(all.as_mut_ptr(), v) };
        // SAFETY: n <= LANES elements may be written, and `all` has them.
        unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), at, n.min(Self::LANES)) };
    }
}

/// An innermost loop that needs nearly all registers, for [`Lanes::apart`]. Melted into a function that does more, the compiler
/// shuffles its vectors from register to register in every step.
pub trait Apart<T: Float> {
    /// The loop; mark it `#[inline(always)]`, and all it calls.
    fn run<S: Lanes<T>>(self, s: S);
}

/// An instruction set: a token whose existence proves that the CPU has it.
pub trait Simd: Lanes<f32> + Lanes<f64> + HalfLanes + Copy + Send + Sync + 'static {
    /// `table[at[i] % 16]` for each `i`.
    #[inline(always)]
    fn look_up(self, table: &[f32; MAX_LANES], at: &[u32; MAX_LANES]) -> [f32; MAX_LANES] {
        let mut found = [0.0; MAX_LANES];
        for (found, &at) in found.iter_mut().zip(at) {
            *found = table[at as usize % MAX_LANES];
        }
        found
    }
}

/// An algorithm over any instruction set, started by [`Isa::run`](super::Isa::run).
pub trait SimdTask: Sized {
    /// What it computes.
    type Output;
    /// The algorithm; mark it `#[inline(always)]`, and all it calls.
    fn run<S: Simd>(self, s: S) -> Self::Output;

    // Methods of the task and not of the tokens: the compiler keeps their code with the task's module, so that a change
    // in one kernel does not compile all others anew.

    /// Runs it compiled for AVX2.
    ///
    /// # Safety
    /// The CPU has what the token stands for.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn run_avx2(self, s: super::Avx2) -> Self::Output {
        self.run(s)
    }

    /// Runs it compiled for AVX-512.
    ///
    /// # Safety
    /// The CPU has what the token stands for.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn run_avx512(self, s: super::Avx512) -> Self::Output {
        self.run(s)
    }

    /// Runs it compiled for NEON, which every CPU of this architecture has.
    #[cfg(target_arch = "aarch64")]
    #[doc(hidden)]
    fn run_neon(self, s: super::Neon) -> Self::Output {
        self.run(s)
    }

    /// Runs it with what the baseline CPU has.
    #[doc(hidden)]
    fn run_portable(self) -> Self::Output {
        self.run(super::Portable)
    }
}

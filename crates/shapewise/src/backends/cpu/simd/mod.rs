//! The vector trait: an algorithm is written once over [`Lanes`] and runs on every instruction set.
//!
//! A token such as [`Avx2`] exists only where its instructions do, so the operations on it are safe to
//! call; only those that touch memory through a pointer are `unsafe`. [`Isa::run`] picks the token and
//! compiles the algorithm inside a function that may use its instructions.

mod avx2;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;

/// An element that fits vector lanes and is computed with.
pub trait Float: Copy + Send + Sync + PartialOrd + 'static {}

impl Float for f32 {}
impl Float for f64 {}

/// Vectors of `T` on one instruction set. The token `self` proves that the instructions exist.
pub trait Lanes<T: Float>: Copy {
    /// One register of lanes.
    type V: Copy;
    /// One truth value per lane.
    type M: Copy;
    /// Lanes in a register.
    const LANES: usize;

    /// Every lane `x`.
    fn splat(self, x: T) -> Self::V;
    /// Reads `LANES` elements, any alignment.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` elements.
    unsafe fn load(self, at: *const T) -> Self::V;
    /// Reads the first `n < LANES` elements; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `n` elements.
    unsafe fn load_first(self, at: *const T, n: usize) -> Self::V;
    /// Writes `LANES` elements, any alignment.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements.
    unsafe fn store(self, at: *mut T, v: Self::V);
    /// Writes the first `n < LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for writing `n` elements.
    unsafe fn store_first(self, at: *mut T, v: Self::V, n: usize);

    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the hardware can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
}

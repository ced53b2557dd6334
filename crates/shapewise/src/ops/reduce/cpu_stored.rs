//! Between the types that tensors store and the few that folds compute in.
//!
//! Folds exist for f32, f64, i64, bool and complex f64; other types are converted a block at a time in the first cache
//! through a function pointer, so that every fold is compiled for few types.
#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use num_complex::Complex;

use crate::tensor::{DType, Element};

/// Fills a slice from elements `stride` apart.
type Load<C> = unsafe fn(at: *const u8, stride: isize, out: &mut [C]);
/// Writes the `index`-th element.
type Store<C> = unsafe fn(at: *mut u8, index: isize, value: C);

/// A type that folds compute in.
pub(super) trait Compute: Element {
    const ZERO: Self;
    /// How elements of a stored type are read.
    fn load(from: DType) -> Option<Load<Self>>;
    /// How results are written to a stored type.
    fn store(to: DType) -> Option<Store<Self>>;
}

/// Elements to be read as `C`.
#[derive(Clone, Copy)]
pub(super) struct Source<C> {
    at: *const u8,
    size: isize,
    load: Load<C>,
    native: bool,
}

impl<C: Compute> Source<C> {
    /// The elements of type `dtype` at an address; `None` where they cannot be computed with as `C`.
    pub fn new(at: *const u8, dtype: DType) -> Option<Self> {
        let size = dtype.size() as isize;
        Some(Self { at, size, load: C::load(dtype)?, native: C::DTYPE == dtype })
    }

    /// Whether the elements are stored as `C`.
    #[inline(always)]
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// The elements from an offset on.
    #[inline(always)]
    pub fn from(self, offset: isize) -> Self {
        Self { at: self.at.wrapping_offset(offset * self.size), ..self }
    }

    /// Native elements side by side.
    ///
    /// # Safety
    /// The elements are native, and `len` of them are valid for reading while the slice is used.
    #[inline(always)]
    pub unsafe fn slice<'a>(self, len: usize) -> &'a [C] {
        debug_assert!(self.native);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at.cast(), len) }
    }

    /// `len` elements `stride` apart, where they lie or gathered into `buffer`.
    ///
    /// # Safety
    /// The elements are valid for reading while the slice is used; `buffer` has room for them.
    #[inline(always)]
    pub unsafe fn gather(self, stride: isize, len: usize, buffer: &mut [C]) -> &[C] {
        if self.native && stride == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.slice(len) };
        }
        // SAFETY: the caller's promise.
        unsafe { (self.load)(self.at, stride, &mut buffer[..len]) };
        &buffer[..len]
    }
}

/// Where results of type `C` are written.
#[derive(Clone, Copy)]
pub(super) struct Sink<C> {
    at: *mut u8,
    store: Store<C>,
}

impl<C: Compute> Sink<C> {
    /// The elements of type `dtype` at an address; `None` where a `C` cannot be stored as that.
    pub fn new(at: *mut u8, dtype: DType) -> Option<Self> {
        Some(Self { at, store: C::store(dtype)? })
    }

    /// Writes one element.
    ///
    /// # Safety
    /// The element is valid for writing.
    #[inline(always)]
    pub unsafe fn write(self, index: isize, value: C) {
        // SAFETY: the caller's promise.
        unsafe { (self.store)(self.at, index, value) }
    }
}

/// # Safety
/// As [`Load`]: the elements are valid for reading.
#[inline(always)]
unsafe fn gather<T: Copy, C>(at: *const u8, stride: isize, out: &mut [C], convert: impl Fn(T) -> C) {
    let at = at.cast::<T>();
    if stride == 1 {
        for (i, slot) in out.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *slot = convert(unsafe { *at.add(i) });
        }
    } else {
        for (i, slot) in out.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *slot = convert(unsafe { *at.offset(i as isize * stride) });
        }
    }
}

/// 16-bit floats, converted in bulk where they lie side by side.
///
/// # Safety
/// As [`Load`]: the elements are valid for reading.
unsafe fn gather_half<T: Copy>(at: *const u8, stride: isize, out: &mut [f32], convert: impl Fn(T) -> f32)
where
    [T]: HalfFloatSliceExt,
{
    if stride == 1 {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(at.cast::<T>(), out.len()) }.convert_to_f32_slice(out);
    } else {
        // SAFETY: the caller's promise.
        unsafe { gather(at, stride, out, convert) }
    }
}

macro_rules! compute {
    ($c:ty, $zero:expr, load { $($from:ident: $t:ty => $convert:expr;)* }
     $(halves { $($half:ident: $h:ty => $widen:expr;)* })?
     store { $($to:ident: $narrow:expr;)* }) => {
        impl Compute for $c {
            const ZERO: Self = $zero;

            fn load(from: DType) -> Option<Load<Self>> {
                Some(match from {
                    // SAFETY: callers of a load promise that the elements are valid.
                    $(DType::$from => |at, stride, out| unsafe { gather::<$t, $c>(at, stride, out, $convert) },)*
                    // SAFETY: as above.
                    $($(DType::$half => |at, stride, out| unsafe { gather_half::<$h>(at, stride, out, $widen) },)*)?
                    #[allow(unreachable_patterns)] // some read every type
                    _ => return None,
                })
            }

            fn store(to: DType) -> Option<Store<Self>> {
                Some(match to {
                    // SAFETY: callers of a store promise that the element is valid.
                    $(DType::$to => |at, i, value: $c| unsafe { put(at, i, $narrow(value)) },)*
                    _ => return None,
                })
            }
        }
    };
}

/// # Safety
/// As [`Store`]: the element is valid for writing.
#[inline(always)]
unsafe fn put<T>(at: *mut u8, index: isize, value: T) {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<T>().offset(index).write(value) }
}

compute! {
    f32, 0.0,
    load { F32: f32 => |x| x; }
    halves { F16: f16 => f16::to_f32; BF16: bf16 => bf16::to_f32; }
    store { F32: |x: f32| x; F16: f16::from_f32; BF16: bf16::from_f32; }
}
// Complex numbers are read as their magnitudes: only norms compute with them in f64.
compute! {
    f64, 0.0,
    load {
        F64: f64 => |x| x; F32: f32 => f64::from; F16: f16 => f16::to_f64; BF16: bf16 => bf16::to_f64;
        I8: i8 => f64::from; U8: u8 => f64::from; I32: i32 => f64::from; U32: u32 => f64::from;
        I64: i64 => |x| x as f64; Bool: bool => f64::from;
        C32: Complex<f32> => |x| f64::from(x.re).hypot(f64::from(x.im)); C64: Complex<f64> => |x| x.re.hypot(x.im);
    }
    store { F64: |x: f64| x; F32: |x: f64| x as f32; F16: f16::from_f64; BF16: bf16::from_f64; }
}
compute! {
    i64, 0,
    load {
        I64: i64 => |x| x; I8: i8 => i64::from; U8: u8 => i64::from; I32: i32 => i64::from; U32: u32 => i64::from;
        Bool: bool => i64::from;
    }
    store {
        I64: |x: i64| x; I8: |x: i64| x as i8; U8: |x: i64| x as u8; I32: |x: i64| x as i32; U32: |x: i64| x as u32;
        Bool: |x: i64| x != 0;
    }
}
compute! {
    bool, false,
    load {
        Bool: bool => |x| x; F32: f32 => |x| x != 0.0; F64: f64 => |x| x != 0.0;
        F16: f16 => |x| x.to_bits() & 0x7fff != 0; BF16: bf16 => |x| x.to_bits() & 0x7fff != 0;
        I8: i8 => |x| x != 0; U8: u8 => |x| x != 0; I32: i32 => |x| x != 0; U32: u32 => |x| x != 0;
        I64: i64 => |x| x != 0; C32: Complex<f32> => |x| x.re != 0.0 || x.im != 0.0;
        C64: Complex<f64> => |x| x.re != 0.0 || x.im != 0.0;
    }
    store { Bool: |x: bool| x; }
}
compute! {
    Complex<f64>, Complex::new(0.0, 0.0),
    load {
        C64: Complex<f64> => |x| x;
        C32: Complex<f32> => |x| Complex::new(f64::from(x.re), f64::from(x.im));
    }
    store { C64: |x: Complex<f64>| x; C32: |x: Complex<f64>| Complex::new(x.re as f32, x.im as f32); }
}

//! A BLAS library of the system, opened at run time: nothing is linked, and a machine without one still runs.
//!
//! `SHAPEWISE_BLAS` names the library; otherwise the usual names are tried (MKL, `OpenBLAS`, Accelerate, BLIS).

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::Library;

/// File names tried in turn, those of the fastest libraries first.
const NAMES: &[&str] = if cfg!(target_os = "macos") {
    &["/System/Library/Frameworks/Accelerate.framework/Accelerate", "libmkl_rt.dylib", "libopenblas.dylib"]
} else if cfg!(windows) {
    &["mkl_rt.2.dll", "mkl_rt.1.dll", "libopenblas.dll", "openblas.dll"]
} else {
    &["libmkl_rt.so.2", "libmkl_rt.so", "libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so"]
};

/// What surrounds the plain names of functions in libraries with 64-bit integers.
const WIDE_NAMES: &[(&str, &str)] = &[("", "64_"), ("scipy_", "64_"), ("", "_64")];

const ROW_MAJOR: c_int = 101;
const AS_IT_IS: c_int = 111;
const TRANSPOSED: c_int = 112;

type GemmOf<T, I> =
    unsafe extern "C" fn(c_int, c_int, c_int, I, I, I, T, *const T, I, *const T, I, T, *mut T, I);

#[derive(Clone, Copy)]
enum Product<T> {
    Narrow(GemmOf<T, c_int>),
    Wide(GemmOf<T, i64>),
}

/// An open library and its matrix products.
pub struct Blas {
    name: String,
    f32: Product<f32>,
    f64: Product<f64>,
    set_threads: Option<unsafe extern "C" fn(c_int)>,
    // Keeps the functions above loaded.
    _library: Library,
}

/// A matrix with one contiguous direction, as BLAS wants it.
#[derive(Clone, Copy, Debug)]
pub struct Side<T> {
    /// The first element.
    pub at: *const T,
    /// Elements from one row (or column, if transposed) to the next.
    pub leading: usize,
    /// Whether columns are contiguous instead of rows.
    pub transposed: bool,
}

/// An element type that BLAS multiplies.
pub trait BlasElement: Copy {
    #[doc(hidden)]
    fn gemm(blas: &Blas) -> impl Fn([usize; 3], Side<Self>, Side<Self>, *mut Self, usize) + '_;
}

impl Blas {
    /// The library of this process, or why there is none.
    pub fn find() -> Result<&'static Blas, &'static str> {
        static FOUND: OnceLock<Result<Blas, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| match std::env::var("SHAPEWISE_BLAS") {
            Ok(path) => Blas::open(&path).map_err(|e| format!("SHAPEWISE_BLAS={path}: {e}")),
            Err(_) => NAMES.iter().find_map(|name| Blas::open(name).ok()).ok_or_else(|| {
                format!("no BLAS library was found ({}); install one or set SHAPEWISE_BLAS", NAMES.join(", "))
            }),
        });
        found.as_ref().map_err(String::as_str)
    }

    /// Opens one by its path or file name.
    pub fn open(path: &str) -> Result<Blas, String> {
        // SAFETY: loading runs the library's initialisers; the user or the system chose a BLAS library.
        let library = unsafe { Library::new(path) }.map_err(|e| {
            let cause = std::error::Error::source(&e);
            cause.map_or_else(|| e.to_string(), ToString::to_string)
        })?;
        let narrow = || {
            Some((
                Product::Narrow(symbol(&library, "cblas_sgemm")?),
                Product::Narrow(symbol(&library, "cblas_dgemm")?),
            ))
        };
        let wide = || {
            WIDE_NAMES.iter().find_map(|(before, after)| {
                let name = |plain: &str| format!("{before}{plain}{after}");
                let f32 = Product::Wide(symbol(&library, &name("cblas_sgemm"))?);
                Some((f32, Product::Wide(symbol(&library, &name("cblas_dgemm"))?)))
            })
        };
        let (f32, f64) = narrow().or_else(wide).ok_or("it has no cblas_sgemm and cblas_dgemm")?;
        let set_threads = [
            "openblas_set_num_threads",
            "openblas_set_num_threads64_",
            "scipy_openblas_set_num_threads64_",
            "MKL_Set_Num_Threads",
            "bli_thread_set_num_threads",
        ]
        .iter()
        .find_map(|name| symbol(&library, name));
        Ok(Blas { name: path.to_owned(), f32, f64, set_threads, _library: library })
    }

    /// The path or file name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the number of threads can be set; otherwise the library decides.
    pub fn sets_threads(&self) -> bool {
        self.set_threads.is_some()
    }

    /// `c = a · b` for `[m, n, k]`, the rows of `c` contiguous and `leading` elements apart.
    ///
    /// # Safety
    /// The matrices are valid for these sizes, which fit the library's integers (see [`Blas::fits`]).
    pub unsafe fn gemm<T: BlasElement>(
        &self,
        threads: usize,
        sizes: [usize; 3],
        a: Side<T>,
        b: Side<T>,
        c: *mut T,
        leading: usize,
    ) {
        if let Some(set) = self.set_threads {
            // SAFETY: the function takes a number of threads.
            unsafe { set(threads.try_into().unwrap_or(c_int::MAX)) };
        }
        T::gemm(self)(sizes, a, b, c, leading);
    }

    /// Whether all sizes fit the integers of every library.
    pub fn fits(sizes: &[usize]) -> bool {
        sizes.iter().all(|&n| c_int::try_from(n).is_ok())
    }
}

fn symbol<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: every name asked for has the signature of the type it is kept as.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|f| *f)
}

macro_rules! element {
    ($t:ident) => {
        impl BlasElement for $t {
            fn gemm(blas: &Blas) -> impl Fn([usize; 3], Side<Self>, Side<Self>, *mut Self, usize) + '_ {
                let product = blas.$t;
                let order = |side: &Side<$t>| if side.transposed { TRANSPOSED } else { AS_IT_IS };
                move |[m, n, k], a, b, c, leading| {
                    macro_rules! call {
                        ($f:ident) => {
                            // SAFETY: only `Blas::gemm` calls this, whose caller vouches for the matrices.
                            unsafe {
                                $f(
                                    ROW_MAJOR,
                                    order(&a),
                                    order(&b),
                                    m as _,
                                    n as _,
                                    k as _,
                                    1.0,
                                    a.at,
                                    a.leading as _,
                                    b.at,
                                    b.leading as _,
                                    0.0,
                                    c,
                                    leading as _,
                                )
                            }
                        };
                    }
                    match product {
                        Product::Narrow(f) => call!(f),
                        Product::Wide(f) => call!(f),
                    }
                }
            }
        }
    };
}

element!(f32);
element!(f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_its_name() {
        assert!(Blas::open("libno-such-blas.so").is_err_and(|e| e.contains("no-such-blas")));
    }

    #[test]
    fn products_of_the_system_library_are_right() {
        let Ok(blas) = Blas::find() else {
            eprintln!("skipped: no BLAS library on this machine");
            return;
        };
        // 2×3 times the transposed of 2×3.
        let (a, b, mut c) = ([1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, 2.0, 0.0, 1.0, 1.0], [0.0; 4]);
        let left = Side { at: a.as_ptr(), leading: 3, transposed: false };
        let right = Side { at: b.as_ptr(), leading: 3, transposed: true };
        // SAFETY: the arrays have these sizes.
        unsafe { blas.gemm(1, [2, 2, 3], left, right, c.as_mut_ptr(), 2) };
        assert_eq!(c, [7.0, 5.0, 16.0, 11.0]);
    }
}

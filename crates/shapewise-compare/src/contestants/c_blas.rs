//! OpenBLAS, MKL and oneDNN, opened at run time from the paths in `PEERBENCH_OPENBLAS`, `PEERBENCH_MKL` and
//! `PEERBENCH_DNNL`, so that they take turns in the same process. A library without a path is left out.
//!
//! oneDNN takes its number of threads from `OMP_NUM_THREADS`, which the program sets before it starts itself again.
#![allow(unsafe_code)]

use super::rust_matmul::Product;
use super::{Entrants, writes};
use crate::problem::Problem;
use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

/// `cblas_sgemm` with integers of type `I`: order, both transpositions, m, n, k, alpha, A, B, beta, C.
type Cblas<I> =
    unsafe extern "C" fn(c_int, c_int, c_int, I, I, I, f32, *const f32, I, *const f32, I, f32, *mut f32, I);

/// MKL's batch of equal products at equal distances.
type CblasBatch = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    c_int,
    *const f32,
    c_int,
    c_int,
    f32,
    *mut f32,
    c_int,
    c_int,
    c_int,
);

/// `dnnl_sgemm`: row major, transpositions as letters, sizes of 64 bits.
type Dnnl = unsafe extern "C" fn(
    c_char,
    c_char,
    i64,
    i64,
    i64,
    f32,
    *const f32,
    i64,
    *const f32,
    i64,
    f32,
    *mut f32,
    i64,
) -> c_int;

const ROW_MAJOR: c_int = 101;
const PLAIN: c_int = 111;
const TRANSPOSED: c_int = 112;

/// The function that multiplies, by its interface.
#[derive(Clone, Copy)]
enum Sgemm {
    Wide(Cblas<i64>),
    Narrow(Cblas<c_int>, Option<CblasBatch>),
    Dnnl(Dnnl),
}

/// An opened library.
struct CLibrary {
    name: &'static str,
    sgemm: Sgemm,
    set_threads: Option<unsafe extern "C" fn(c_int)>,
    /// Keeps the functions above loaded.
    library: Library,
}

static LIBRARIES: OnceLock<Vec<Result<CLibrary, String>>> = OnceLock::new();

fn libraries() -> &'static [Result<CLibrary, String>] {
    LIBRARIES.get_or_init(|| {
        let all = [
            ("openblas-c", "PEERBENCH_OPENBLAS", find_openblas as fn(&Library) -> Result<Found>),
            ("mkl-c", "PEERBENCH_MKL", find_mkl),
            ("onednn-c", "PEERBENCH_DNNL", find_dnnl),
        ];
        all.map(|(name, variable, find)| {
            open(name, variable, find).map_err(|e| format!("{name} does not take part: {e:#}"))
        })
        .into()
    })
}

/// Why some C libraries do not take part.
pub fn warnings() -> Vec<String> {
    libraries().iter().filter_map(|l| l.as_ref().err().cloned()).collect()
}

type Found = (Sgemm, Option<unsafe extern "C" fn(c_int)>);

fn open(name: &'static str, variable: &str, find: fn(&Library) -> Result<Found>) -> Result<CLibrary> {
    let library = library(variable)?;
    let (sgemm, set_threads) =
        find(&library).with_context(|| format!("in the library that {variable} names"))?;
    Ok(CLibrary { name, sgemm, set_threads, library })
}

/// Opens the library whose path is in the environment.
pub(super) fn library(variable: &str) -> Result<Library> {
    let path = std::env::var(variable).ok().filter(|p| !p.is_empty());
    let path = path.with_context(|| format!("{variable} does not say where it is"))?;
    // Each library must find its own symbols first: several of them export the same names.
    #[cfg(target_os = "linux")]
    let flags = RTLD_NOW | libc::RTLD_DEEPBIND;
    #[cfg(not(target_os = "linux"))]
    let flags = RTLD_NOW;
    // SAFETY: the user names a library to load; its initialisers run, as for any library linked.
    unsafe { Library::open(Some(&path), flags) }.with_context(|| format!("cannot open {path}"))
}

/// The first of these symbols that the library has.
pub(super) fn symbol<T: Copy>(library: &Library, names: &[&str]) -> Result<T> {
    names
        .iter()
        // SAFETY: callers name the type of the documented interface.
        .find_map(|name| unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|s| *s))
        .with_context(|| format!("no symbol {}", names.join(" or ")))
}

fn find_openblas(library: &Library) -> Result<Found> {
    let threads =
        ["scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"];
    let threads = symbol(library, &threads)?;
    // Builds with 64-bit integers carry the number in their names.
    let sgemm = match symbol(library, &["scipy_cblas_sgemm64_", "cblas_sgemm64_"]) {
        Ok(wide) => Sgemm::Wide(wide),
        Err(_) => Sgemm::Narrow(symbol(library, &["cblas_sgemm"])?, None),
    };
    Ok((sgemm, Some(threads)))
}

fn find_mkl(library: &Library) -> Result<Found> {
    let batch = symbol(library, &["cblas_sgemm_batch_strided"]).ok();
    let sgemm = Sgemm::Narrow(symbol(library, &["cblas_sgemm"])?, batch);
    Ok((sgemm, Some(symbol(library, &["MKL_Set_Num_Threads"])?)))
}

fn find_dnnl(library: &Library) -> Result<Found> {
    Ok((Sgemm::Dnnl(symbol(library, &["dnnl_sgemm"])?), None))
}

/// MKL, told how many threads it may use, if it was found.
pub(super) fn mkl(threads: usize) -> Option<&'static Library> {
    let found = libraries().iter().filter_map(|l| l.as_ref().ok()).find(|l| l.name == "mkl-c")?;
    if let Some(set_threads) = found.set_threads {
        // SAFETY: takes a plain number by its documented interface.
        unsafe { set_threads(threads as c_int) };
    }
    Some(&found.library)
}

/// The C libraries that were found.
pub fn enter(problem: &Problem, threads: usize) -> Entrants<'_> {
    let Some(product) = Product::of(problem) else { return vec![] };
    let found = libraries().iter().filter_map(|l| l.as_ref().ok());
    found
        .map(|library| {
            if let Some(set_threads) = library.set_threads {
                // SAFETY: takes a plain number by its documented interface.
                unsafe { set_threads(threads as c_int) };
            }
            writes(library.name, move |out| multiply(library.sgemm, product, out))
        })
        .collect()
}

fn multiply(sgemm: Sgemm, p: Product<'_>, out: &mut [f32]) {
    if let (Sgemm::Narrow(_, Some(batch)), 2..) = (sgemm, p.batch) {
        return multiply_batch(batch, p, out);
    }
    let size = p.m * p.n;
    for t in 0..p.batch {
        multiply_one(sgemm, p.one(t), &mut out[t * size..][..size]);
    }
}

fn multiply_one(sgemm: Sgemm, p: Product<'_>, c: &mut [f32]) {
    assert!(c.len() == p.m * p.n && p.a.len() == p.m * p.k && p.b.len() == p.k * p.n);
    let (a, b, c) = (p.a.as_ptr(), p.b.as_ptr(), c.as_mut_ptr());
    let (m, n, k) = (p.m as i64, p.n as i64, p.k as i64);
    let (turn, ldb) = if p.transposed { (TRANSPOSED, k) } else { (PLAIN, n) };
    // SAFETY: the lengths were checked above and fit the sizes and leading dimensions passed; `c` is not aliased.
    unsafe {
        match sgemm {
            Sgemm::Wide(f) => f(ROW_MAJOR, PLAIN, turn, m, n, k, 1.0, a, k, b, ldb, 0.0, c, n),
            Sgemm::Narrow(f, _) => {
                let [m, n, k, ldb] = [m, n, k, ldb].map(|v| v as c_int);
                f(ROW_MAJOR, PLAIN, turn, m, n, k, 1.0, a, k, b, ldb, 0.0, c, n);
            }
            Sgemm::Dnnl(f) => {
                let letter = if p.transposed { b'T' } else { b'N' };
                f(b'N' as c_char, letter as c_char, m, n, k, 1.0, a, k, b, ldb, 0.0, c, n);
            }
        }
    }
}

fn multiply_batch(f: CblasBatch, p: Product<'_>, out: &mut [f32]) {
    assert!(out.len() == p.batch * p.m * p.n);
    assert!(p.a.len() == p.batch * p.m * p.k && p.b.len() == p.batch * p.k * p.n);
    let [m, n, k, batch] = [p.m, p.n, p.k, p.batch].map(|v| v as c_int);
    let (turn, ldb) = if p.transposed { (TRANSPOSED, k) } else { (PLAIN, n) };
    let (a, b, c) = (p.a.as_ptr(), p.b.as_ptr(), out.as_mut_ptr());
    let [step_a, step_b, step_c] = [m * k, k * n, m * n];
    // SAFETY: the lengths were checked above and hold `batch` matrices at these distances; `c` is not aliased.
    unsafe {
        f(ROW_MAJOR, PLAIN, turn, m, n, k, 1.0, a, k, step_a, b, ldb, step_b, 0.0, c, n, step_c, batch);
    }
}

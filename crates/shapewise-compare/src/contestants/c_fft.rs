//! Transforms by FFTW and MKL, opened at run time from the paths in `PEERBENCH_FFTW` (and `PEERBENCH_FFTW_OMP` for its
//! threads) and `PEERBENCH_MKL`, each by a plan that was made before the clock starts and owns no more than its tables.
#![allow(unsafe_code)]

use super::c_blas::{self, symbol};
use super::{Entrants, writes};
use crate::buffer::Buffer;
use crate::problem::{Problem, input};
use crate::workload::{Task, Transform};
use anyhow::{Context, Result, ensure};
use libloading::os::unix::Library;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ptr::null;
use std::sync::OnceLock;

/// What is transformed.
#[derive(Clone, Copy)]
struct Sizes {
    op: Transform,
    n: usize,
    batch: usize,
}

impl Sizes {
    /// Numbers of f32 that are read, and written.
    fn floats(self) -> [usize; 2] {
        match self.op {
            Transform::Real => [self.n * self.batch, (self.n / 2 + 1) * 2 * self.batch],
            _ => [2 * self.n * self.batch; 2],
        }
    }
}

/// The C libraries that were found.
pub fn enter(problem: &Problem, threads: usize) -> Result<Entrants<'_>> {
    let Task::Fft { op, n, batch } = problem.task else { return Ok(vec![]) };
    let (sizes, x) = (Sizes { op, n, batch }, &problem.inputs[input::X]);
    let mut all: Entrants<'_> = Vec::new();
    if let Ok(fftw) = fftw() {
        let plan = Fftw::new(fftw, sizes, threads)?;
        all.push(writes("fftw-c", move |out| plan.transform(x, out)));
    }
    if let Some(library) = c_blas::mkl(threads) {
        let plan = Dfti::new(library, sizes, threads)?;
        all.push(writes("mkl-c", move |out| plan.transform(x, out)));
    }
    Ok(all)
}

/// Why FFTW does not take part, if so.
pub fn warning() -> Option<String> {
    fftw().err().map(|e| format!("fftw-c does not take part: {e}"))
}

/// FFTW and the library of its threads.
struct FftwLibraries {
    core: Library,
    threads: Option<Library>,
}

fn fftw() -> Result<&'static FftwLibraries, &'static str> {
    static FOUND: OnceLock<Result<FftwLibraries, String>> = OnceLock::new();
    let open = || -> Result<FftwLibraries> {
        let core = c_blas::library("PEERBENCH_FFTW")?;
        Ok(FftwLibraries { core, threads: c_blas::library("PEERBENCH_FFTW_OMP").ok() })
    };
    FOUND.get_or_init(|| open().map_err(|e| format!("{e:#}"))).as_ref().map_err(String::as_str)
}

type Many = unsafe extern "C" fn(
    c_int,
    *const c_int,
    c_int,
    *mut c_void,
    *const c_int,
    c_int,
    c_int,
    *mut c_void,
    *const c_int,
    c_int,
    c_int,
    c_int,
    c_uint,
) -> *mut c_void;
type ManyReal = unsafe extern "C" fn(
    c_int,
    *const c_int,
    c_int,
    *mut c_void,
    *const c_int,
    c_int,
    c_int,
    *mut c_void,
    *const c_int,
    c_int,
    c_int,
    c_uint,
) -> *mut c_void;

/// A measured plan (`FFTW_MEASURE`, 0) that leaves its input as it was.
const PRESERVE_INPUT: c_uint = 1 << 4;
const FORWARD: c_int = -1;

/// A plan of FFTW.
struct Fftw {
    plan: *mut c_void,
    execute: unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void),
    destroy: unsafe extern "C" fn(*mut c_void),
    floats: [usize; 2],
}

impl Fftw {
    fn new(libraries: &FftwLibraries, sizes: Sizes, threads: usize) -> Result<Self> {
        if threads > 1 {
            let library = libraries.threads.as_ref();
            let library = library.context("PEERBENCH_FFTW_OMP does not say where FFTW's threads are")?;
            let init: unsafe extern "C" fn() -> c_int = symbol(library, &["fftwf_init_threads"])?;
            let plan_with: unsafe extern "C" fn(c_int) = symbol(library, &["fftwf_plan_with_nthreads"])?;
            // SAFETY: plain numbers by their documented interfaces, before the first plan.
            unsafe {
                ensure!(init() != 0, "fftwf_init_threads failed");
                plan_with(threads as c_int);
            }
        }
        let (core, floats) = (&libraries.core, sizes.floats());
        // Measuring overwrites what it is given; a plan then takes any arrays that are aligned alike.
        let (mut x, mut y) = (Buffer::zeroed(floats[0], 0), Buffer::zeroed(floats[1], 1));
        let (x, y) = (x.as_mut_ptr().cast(), y.as_mut_ptr().cast());
        let [n, batch, half] = [sizes.n, sizes.batch, sizes.n / 2 + 1].map(|v| v as c_int);
        let (rank, lengths, repeats) =
            if sizes.op == Transform::Plane { (2, [batch, n], 1) } else { (1, [n, 0], batch) };
        // SAFETY: the arrays have room for all lines at these distances.
        let plan = unsafe {
            if sizes.op == Transform::Real {
                let make: ManyReal = symbol(core, &["fftwf_plan_many_dft_r2c"])?;
                make(1, &raw const n, batch, x, null(), 1, n, y, null(), 1, half, PRESERVE_INPUT)
            } else {
                let make: Many = symbol(core, &["fftwf_plan_many_dft"])?;
                let lengths = lengths.as_ptr();
                make(rank, lengths, repeats, x, null(), 1, n, y, null(), 1, n, FORWARD, PRESERVE_INPUT)
            }
        };
        ensure!(!plan.is_null(), "FFTW has no plan for this");
        let execute = if sizes.op == Transform::Real { "fftwf_execute_dft_r2c" } else { "fftwf_execute_dft" };
        let destroy = symbol(core, &["fftwf_destroy_plan"])?;
        Ok(Self { plan, execute: symbol(core, &[execute])?, destroy, floats })
    }

    fn transform(&self, x: &[f32], y: &mut [f32]) {
        assert!([x.len(), y.len()] == self.floats);
        // SAFETY: the lengths are those of the plan, and all buffers start on a cache line like those it was made with.
        unsafe { (self.execute)(self.plan, x.as_ptr().cast(), y.as_mut_ptr().cast()) };
    }
}

impl Drop for Fftw {
    fn drop(&mut self) {
        // SAFETY: the plan was made in `new` and is not used any more.
        unsafe { (self.destroy)(self.plan) };
    }
}

/// Names of MKL's settings and their values, from its header `mkl_dfti.h`.
mod dfti {
    use std::ffi::c_int;
    pub const COMPLEX: c_int = 32;
    pub const REAL: c_int = 33;
    pub const NUMBER_OF_TRANSFORMS: c_int = 7;
    pub const CONJUGATE_EVEN_STORAGE: c_int = 10;
    pub const PLACEMENT: c_int = 11;
    pub const INPUT_DISTANCE: c_int = 14;
    pub const OUTPUT_DISTANCE: c_int = 15;
    pub const THREAD_LIMIT: c_int = 27;
    pub const COMPLEX_COMPLEX: c_int = 39;
    pub const NOT_INPLACE: c_int = 44;
}

/// A descriptor of MKL.
struct Dfti {
    handle: *mut c_void,
    forward: unsafe extern "C" fn(*mut c_void, *const c_void, ...) -> c_long,
    free: unsafe extern "C" fn(*mut *mut c_void) -> c_long,
    floats: [usize; 2],
}

impl Dfti {
    fn new(library: &Library, sizes: Sizes, threads: usize) -> Result<Self> {
        type Line = unsafe extern "C" fn(*mut *mut c_void, c_int, c_long) -> c_long;
        type Plane = unsafe extern "C" fn(*mut *mut c_void, c_int, c_long, *const c_long) -> c_long;
        type Set = unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_long;
        type Commit = unsafe extern "C" fn(*mut c_void) -> c_long;
        let line: Line = symbol(library, &["DftiCreateDescriptor_s_1d"])?;
        let plane: Plane = symbol(library, &["DftiCreateDescriptor_s_md"])?;
        let set: Set = symbol(library, &["DftiSetValue"])?;
        let commit: Commit = symbol(library, &["DftiCommitDescriptor"])?;
        let Sizes { op, n, batch } = sizes;
        let real = op == Transform::Real;
        let [n, half, repeats] = [n, n / 2 + 1, batch].map(|v| v as c_long);
        let mut handle = std::ptr::null_mut();
        // SAFETY: lengths and settings have the types that the documented interface takes.
        let status = unsafe {
            let domain = if real { dfti::REAL } else { dfti::COMPLEX };
            let mut status = if op == Transform::Plane {
                plane(&raw mut handle, domain, 2, [repeats, n].as_ptr())
            } else {
                line(&raw mut handle, domain, n)
            };
            ensure!(status == 0, "DftiCreateDescriptor gives {status}");
            status |= set(handle, dfti::PLACEMENT, dfti::NOT_INPLACE);
            status |= set(handle, dfti::THREAD_LIMIT, threads as c_long);
            if real {
                status |= set(handle, dfti::CONJUGATE_EVEN_STORAGE, dfti::COMPLEX_COMPLEX);
            }
            if op != Transform::Plane && batch > 1 {
                status |= set(handle, dfti::NUMBER_OF_TRANSFORMS, repeats);
                status |= set(handle, dfti::INPUT_DISTANCE, n);
                status |= set(handle, dfti::OUTPUT_DISTANCE, if real { half } else { n });
            }
            status | commit(handle)
        };
        ensure!(status == 0, "MKL refuses the transform: {status}");
        let (forward, free) =
            (symbol(library, &["DftiComputeForward"])?, symbol(library, &["DftiFreeDescriptor"])?);
        Ok(Self { handle, forward, free, floats: sizes.floats() })
    }

    fn transform(&self, x: &[f32], y: &mut [f32]) {
        assert!([x.len(), y.len()] == self.floats);
        let (x, y) = (x.as_ptr().cast::<c_void>(), y.as_mut_ptr().cast::<c_void>());
        // SAFETY: the lengths are those of the descriptor; nothing is aliased.
        let status = unsafe { (self.forward)(self.handle, x, y) };
        assert_eq!(status, 0, "MKL's transform");
    }
}

impl Drop for Dfti {
    fn drop(&mut self) {
        // SAFETY: the descriptor was made in `new` and is not used any more.
        unsafe { (self.free)(&raw mut self.handle) };
    }
}

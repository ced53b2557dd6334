//! Which instruction sets this CPU has, and running an algorithm on one of them.
use super::SimdTask;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// A family of vector instructions that kernels are compiled for.
#[allow(clippy::unsafe_derive_deserialize)] // any value is valid: `run` asks the CPU itself
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// What the compiler makes of plain arrays on the baseline CPU.
    Portable,
    /// ARM's 128-bit vectors.
    Neon,
    /// 256-bit vectors with FMA and F16C.
    Avx2,
    /// 512-bit vectors (F, BW, DQ, VL).
    Avx512,
}

/// A name that is no instruction set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no instruction set: use portable, neon, avx2 or avx512")]
pub struct ParseIsaError(String);

impl Isa {
    /// All, worst first.
    pub const ALL: [Isa; 4] = [Isa::Portable, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The name, as `SHAPEWISE_ISA` and kernel names spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Bytes in a vector register.
    pub const fn register_bytes(self) -> usize {
        match self {
            Isa::Portable | Isa::Neon => 16,
            Isa::Avx2 => 32,
            Isa::Avx512 => 64,
        }
    }

    /// The usable ones, worst first: what the CPU has, up to the cap in `SHAPEWISE_ISA` (read once).
    pub fn available() -> &'static [Isa] {
        static FOUND: OnceLock<Vec<Isa>> = OnceLock::new();
        FOUND.get_or_init(|| {
            let cap = cap_from(std::env::var("SHAPEWISE_ISA").ok().as_deref());
            Isa::ALL.into_iter().filter(|isa| *isa <= cap && isa.on_this_cpu()).collect()
        })
    }

    /// Whether it is usable here: one load and a test, because every kernel asks.
    #[inline]
    pub fn is_available(self) -> bool {
        let mut bits = AVAILABLE.load(Ordering::Relaxed);
        if bits == 0 {
            bits = find_available();
        }
        bits >> self as u8 & 1 == 1
    }

    /// The best usable one.
    #[inline]
    pub fn best() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// Runs the algorithm with these instructions, or with the portable ones where they are not available.
    #[inline]
    pub fn run<K: SimdTask>(self, task: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        {
            if self == Isa::Avx512 && self.is_available() {
                // SAFETY: the instructions are available.
                return unsafe { task.run_avx512(super::Avx512::new_unchecked()) };
            }
            if self == Isa::Avx2 && self.is_available() {
                // SAFETY: the instructions are available.
                return unsafe { task.run_avx2(super::Avx2::new_unchecked()) };
            }
        }
        #[cfg(target_arch = "aarch64")]
        if let (Isa::Neon, true, Some(neon)) = (self, self.is_available(), super::Neon::new()) {
            return task.run_neon(neon);
        }
        task.run_portable()
    }

    /// As [`run`](Isa::run), for algorithms that gain nothing from 512-bit registers: they are not compiled for them.
    #[inline]
    pub fn run_narrow<K: SimdTask>(self, task: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self >= Isa::Avx2 && Isa::Avx2.is_available() {
            // SAFETY: the instructions are available.
            return unsafe { task.run_avx2(super::Avx2::new_unchecked()) };
        }
        #[cfg(target_arch = "aarch64")]
        if let (Isa::Neon, true, Some(neon)) = (self, self.is_available(), super::Neon::new()) {
            return task.run_neon(neon);
        }
        task.run_portable()
    }

    /// Whether the CPU has it, whatever the cap says.
    fn on_this_cpu(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::Avx2::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::Avx512::new().is_some(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => super::Neon::new().is_some(),
            #[allow(unreachable_patterns)] // which ones are left depends on the architecture
            _ => false,
        }
    }
}

/// Bit `isa as u8` for each usable one; zero before the first question (the portable one is always there).
static AVAILABLE: AtomicU8 = AtomicU8::new(0);

#[cold]
fn find_available() -> u8 {
    let bits = Isa::available().iter().fold(0, |bits, isa| bits | 1 << *isa as u8);
    AVAILABLE.store(bits, Ordering::Relaxed);
    bits
}

/// The best allowed instruction set by the value of `SHAPEWISE_ISA`.
fn cap_from(value: Option<&str>) -> Isa {
    match value.map(str::parse) {
        None => Isa::Avx512,
        Some(Ok(isa)) => isa,
        Some(Err(error)) => {
            tracing::warn!("SHAPEWISE_ISA is ignored: {error}");
            Isa::Avx512
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Isa {
    type Err = ParseIsaError;

    fn from_str(name: &str) -> Result<Self, ParseIsaError> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| ParseIsaError(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert!("sse".parse::<Isa>().is_err());
    }

    #[test]
    fn the_cap_limits_and_a_wrong_one_does_not() {
        assert_eq!(cap_from(Some("avx2")), Isa::Avx2);
        assert_eq!(cap_from(Some("fast")), Isa::Avx512);
        assert_eq!(cap_from(None), Isa::Avx512);
    }

    #[test]
    fn portable_is_always_there_and_best_is_last() {
        assert_eq!(Isa::available()[0], Isa::Portable);
        assert!(Isa::best().is_available());
    }
}

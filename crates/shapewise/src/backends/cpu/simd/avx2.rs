//! AVX2 with FMA: eight lanes of f32.
#![cfg(target_arch = "x86_64")]

/// Proof that this CPU has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the CPU has the instructions.
    pub fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }
}

//! One call, many kernels, and a choice you can ask about.
#![deny(unsafe_code)]

pub mod backends;

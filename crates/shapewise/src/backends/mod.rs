//! One folder per family of devices.

pub mod cpu;

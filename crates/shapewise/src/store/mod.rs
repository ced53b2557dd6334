//! What is kept between processes.

mod calibration;
mod directory;

pub use calibration::CalibrationFiles;
pub use directory::cache_directory;

//! What the driver compiled, kept on disk between processes.

use std::path::{Path, PathBuf};

use super::context::Context;

/// Marks files of ours; the number rises when their form changes.
const MAGIC: &[u8; 8] = b"SWPIPE01";

/// The driver's pipeline cache and the file it is kept in.
pub struct PipelineFile {
    cache: wgpu::PipelineCache,
    path: PathBuf,
}

impl PipelineFile {
    /// Opens the cache of this adapter in a folder; `None` where the adapter has none.
    pub fn open(context: &Context, info: &wgpu::AdapterInfo, folder: &Path) -> Option<Self> {
        let key = wgpu::util::pipeline_cache_key(info)?;
        if !context.device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let driver = checksum(format!("{} {} {}", info.name, info.driver, info.driver_info).as_bytes());
        let path = folder.join(format!("{key}_{driver:016x}.bin"));
        let data = std::fs::read(&path).ok().and_then(|bytes| unwrap(&bytes).map(<[u8]>::to_vec));
        let make = || {
            // SAFETY: the data came from `get_data` of a cache of the same adapter and driver: the file's name holds both, and its checksum holds.
            unsafe {
                context.device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                    label: Some("shapewise"),
                    data: data.as_deref(),
                    fallback: true,
                })
            }
        };
        match context.scoped("the pipeline cache", make) {
            Ok(cache) => Some(Self { cache, path }),
            Err(error) => {
                tracing::warn!("no pipeline cache: {error}");
                None
            }
        }
    }

    pub fn cache(&self) -> &wgpu::PipelineCache {
        &self.cache
    }

    /// Writes the file; returns its bytes, or `None` where the driver gives nothing or the file cannot be written.
    pub fn save(&self) -> Option<usize> {
        let bytes = wrap(&self.cache.get_data()?);
        let partial = self.path.with_extension(format!("{}.part", std::process::id()));
        let written = self
            .path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&partial, &bytes))
            .and_then(|()| std::fs::rename(&partial, &self.path));
        match written {
            Ok(()) => Some(bytes.len()),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), "the pipeline cache was not kept: {error}");
                None
            }
        }
    }
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn wrap(data: &[u8]) -> Vec<u8> {
    [MAGIC.as_slice(), &checksum(data).to_le_bytes(), data].concat()
}

/// The data of a file that is whole and ours.
fn unwrap(bytes: &[u8]) -> Option<&[u8]> {
    let (sum, data) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == checksum(data)).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_not_read() {
        let file = wrap(b"compiled");
        assert_eq!(unwrap(&file), Some(b"compiled".as_slice()));
        assert_eq!(unwrap(&wrap(b"")), Some(b"".as_slice()));
        for i in 0..file.len() {
            let mut damaged = file.clone();
            damaged[i] ^= 1;
            assert_eq!(unwrap(&damaged), None, "byte {i}");
            assert_eq!(unwrap(&file[..i]), None, "cut at {i}");
        }
    }
}

//! macOS: `sysctl`.

use std::ffi::CStr;

use super::Topology;

/// Fills in what the system tells.
pub fn read(found: &mut Topology) {
    let size = |name| number(name).filter(|&bytes| bytes > 0);
    // The fast cores have names of their own where there are two kinds.
    found.caches.l1d = size(c"hw.perflevel0.l1dcachesize").or_else(|| size(c"hw.l1dcachesize"));
    found.caches.l2 = size(c"hw.perflevel0.l2cachesize").or_else(|| size(c"hw.l2cachesize"));
    found.caches.l3 = size(c"hw.perflevel0.l3cachesize").or_else(|| size(c"hw.l3cachesize"));
    found.physical_cores = size(c"hw.physicalcpu");
    found.memory = size(c"hw.memsize");
    found.brand = bytes(c"machdep.cpu.brand_string").and_then(|bytes| {
        let name = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?.trim();
        (!name.is_empty()).then(|| name.to_owned())
    });
    found.model = number(c"hw.cpufamily").map(|family| format!("family {family:#x}"));
}

/// An integer of four or eight bytes.
fn number(name: &CStr) -> Option<usize> {
    let bytes = bytes(name)?;
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize),
        8 => usize::try_from(u64::from_ne_bytes(bytes.try_into().ok()?)).ok(),
        _ => None,
    }
}

/// The raw value, if there is one of at most 256 bytes.
fn bytes(name: &CStr) -> Option<Vec<u8>> {
    let mut buffer = vec![0_u8; 256];
    let mut length = buffer.len();
    // SAFETY: the name ends with zero, and `length` is the number of bytes that may be written to `buffer`.
    let status = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    buffer.truncate(length);
    (status == 0).then_some(buffer)
}

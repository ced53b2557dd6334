//! The FNV-1a hash: short, usable in constants, and unlike the standard library's the same in every release.

use std::fmt;

/// The 64-bit hash of some bytes.
pub(crate) const fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut i = 0;
    while i < bytes.len() {
        hash = step(hash, bytes[i] as u64);
        i += 1;
    }
    hash
}

/// The hash of source files, eight bytes at a time: the compiler's interpreter works it out, and byte by byte that took 23 s.
pub(crate) const fn of_sources(files: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut file = 0;
    while file < files.len() {
        let (words, rest) = files[file].as_chunks();
        let mut i = 0;
        while i < words.len() {
            hash = step(hash, u64::from_le_bytes(words[i])).rotate_left(29);
            i += 1;
        }
        i = 0;
        while i < rest.len() {
            hash = step(hash, rest[i] as u64);
            i += 1;
        }
        file += 1;
    }
    hash
}

const fn step(hash: u64, bits: u64) -> u64 {
    (hash ^ bits).wrapping_mul(0x0100_0000_01b3)
}

/// The hash of the named files beside this one, worked out when the library is built.
macro_rules! source_hash {
    ($($file:literal),+ $(,)?) => {
        const { $crate::hash::of_sources(&[$(include_bytes!($file)),+]) }
    };
}
pub(crate) use source_hash;

/// 128 bits from exactly 32 hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<u128> {
    // The standard parser takes a sign as well.
    let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// The 128-bit hash of text as it is written.
pub(crate) struct Fnv128(u128);

impl Fnv128 {
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub fn finish(&self) -> u128 {
        self.0
    }
}

impl fmt::Write for Fnv128 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn hashes_are_the_published_ones() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
        let mut wide = Fnv128::new();
        wide.write_str("a").unwrap();
        assert_eq!(wide.finish(), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn every_kernel_of_the_library_has_a_source() {
        for kernel in crate::ops::OperationKind::ALL.iter().flat_map(|o| o.kernels()) {
            assert_ne!(kernel.source(), 0, "{}", kernel.name());
        }
    }

    #[test]
    fn every_byte_of_a_source_counts() {
        let text = b"let nine = 9 * ones;\n";
        let hashes: std::collections::HashSet<_> = (0..text.len())
            .map(|i| {
                let mut changed = *text;
                changed[i] ^= 1;
                of_sources(&[&changed])
            })
            .chain([of_sources(&[text])])
            .collect();
        assert_eq!(hashes.len(), text.len() + 1);
        assert_ne!(of_sources(&[b"one", b"two"]), of_sources(&[b"two", b"one"]));
    }
}

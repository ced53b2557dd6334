//! x86: what the processor itself answers, for whatever the system did not tell.

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

use super::Topology;

/// A data or unified cache, as a cache-parameter leaf describes it.
#[derive(Debug, PartialEq, Eq)]
struct Cache {
    level: u32,
    bytes: usize,
}

/// Fills in what is still missing.
pub fn read(found: &mut Topology) {
    if found.brand.is_none() {
        found.brand = brand_from(highest_extended(), __cpuid);
    }
    if found.model.is_none() {
        found.model = Some(model_from(__cpuid(0), __cpuid(1)));
    }
    for Cache { level, bytes } in caches() {
        let size = match level {
            1 => &mut found.caches.l1d,
            2 => &mut found.caches.l2,
            3 => &mut found.caches.l3,
            _ => continue,
        };
        size.get_or_insert(bytes);
    }
}

fn highest_extended() -> u32 {
    __cpuid(0x8000_0000).eax
}

/// The caches, from AMD's leaf where it exists and Intel's otherwise.
fn caches() -> Vec<Cache> {
    const AMD: u32 = 0x8000_001d;
    const INTEL: u32 = 4;
    let has_topology_extension = || __cpuid(0x8000_0001).ecx & (1 << 22) != 0;
    let leaf = if highest_extended() >= AMD && has_topology_extension() {
        AMD
    } else if __cpuid(0).eax >= INTEL {
        INTEL
    } else {
        return Vec::new();
    };
    (0..16)
        .map(|index| __cpuid_count(leaf, index))
        .take_while(|leaf| leaf.eax & 0x1f != 0)
        .filter_map(|leaf| cache(&leaf))
        .collect()
}

/// One subleaf; none for instruction caches.
fn cache(leaf: &CpuidResult) -> Option<Cache> {
    let kind = leaf.eax & 0x1f;
    let (line, partitions, ways) = (leaf.ebx & 0xfff, (leaf.ebx >> 12) & 0x3ff, leaf.ebx >> 22);
    let bytes = [line, partitions, ways, leaf.ecx]
        .into_iter()
        .try_fold(1_usize, |product, factor| product.checked_mul(factor as usize + 1))?;
    matches!(kind, 1 | 3).then_some(Cache { level: (leaf.eax >> 5) & 7, bytes })
}

/// The brand string of three leaves.
fn brand_from(highest: u32, cpuid: impl Fn(u32) -> CpuidResult) -> Option<String> {
    if highest < 0x8000_0004 {
        return None;
    }
    let mut bytes = Vec::with_capacity(48);
    for leaf in 0x8000_0002..=0x8000_0004 {
        let CpuidResult { eax, ebx, ecx, edx } = cpuid(leaf);
        bytes.extend([eax, ebx, ecx, edx].into_iter().flat_map(u32::to_le_bytes));
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Vendor, family, model and stepping.
fn model_from(vendor: CpuidResult, signature: CpuidResult) -> String {
    let letters: Vec<u8> =
        [vendor.ebx, vendor.edx, vendor.ecx].into_iter().flat_map(u32::to_le_bytes).collect();
    let vendor = String::from_utf8_lossy(&letters);
    let bits = |low: u32, mask: u32| (signature.eax >> low) & mask;
    let base = bits(8, 0xf);
    let family = if base == 0xf { base + bits(20, 0xff) } else { base };
    let model = if matches!(base, 0x6 | 0xf) { (bits(16, 0xf) << 4) | bits(4, 0xf) } else { bits(4, 0xf) };
    format!("{vendor} family {family} model {model} stepping {}", bits(0, 0xf))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn registers(eax: u32, ebx: u32, ecx: u32, edx: u32) -> CpuidResult {
        CpuidResult { eax, ebx, ecx, edx }
    }

    #[test]
    fn cache_leaves_of_a_zen_3() {
        let l1d = registers(0x0000_0121, 0x01c0_003f, 0x3f, 0);
        assert_eq!(cache(&l1d), Some(Cache { level: 1, bytes: 32 << 10 }));
        let l1i = registers(0x0000_0122, 0x01c0_003f, 0x3f, 0);
        assert_eq!(cache(&l1i), None);
        let l3 = registers(0x0000_4163, 0x03c0_003f, 0x7fff, 0);
        assert_eq!(cache(&l3), Some(Cache { level: 3, bytes: 32 << 20 }));
        let nonsense = registers(u32::MAX, u32::MAX, u32::MAX, u32::MAX);
        assert_eq!(cache(&nonsense), None);
    }

    #[test]
    fn models_with_extended_numbers() {
        let vendor = registers(
            16,
            u32::from_le_bytes(*b"Auth"),
            u32::from_le_bytes(*b"cAMD"),
            u32::from_le_bytes(*b"enti"),
        );
        let zen3 = model_from(vendor, registers(0x00a0_0f11, 0, 0, 0));
        assert_eq!(zen3, "AuthenticAMD family 25 model 1 stepping 1");
        let skylake = model_from(vendor, registers(0x0005_0654, 0, 0, 0));
        assert_eq!(skylake, "AuthenticAMD family 6 model 85 stepping 4");
    }

    #[test]
    fn brands_end_at_zero_and_may_be_missing() {
        let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
        let leaf = |number: u32| match number {
            0x8000_0002 => registers(word(b"  My"), word(b" CPU"), 0, 0),
            _ => registers(word(b"left"), 0, 0, 0),
        };
        assert_eq!(brand_from(0x8000_0008, leaf).as_deref(), Some("My CPU"));
        assert_eq!(brand_from(0x8000_0001, leaf), None);
        assert_eq!(brand_from(0x8000_0004, |_| registers(0xffff_ffff, 0, 0, 0)), None);
        assert_eq!(brand_from(0x8000_0004, |_| registers(0, 0, 0, 0)), None);
    }

    #[test]
    fn the_processor_agrees_with_the_system() {
        let mut alone = Topology::default();
        read(&mut alone);
        let both = Topology::detect();
        for (own, system) in [(alone.caches.l1d, both.caches.l1d), (alone.caches.l2, both.caches.l2)] {
            if let (Some(own), Some(system)) = (own, system) {
                assert_eq!(own, system);
            }
        }
    }
}

//! Linux: `/sys` and `/proc`, below a root that tests replace.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::Topology;
use crate::device::NumaNode;

/// No file read here is longer; a longer one is not what it seems.
const LONGEST: u64 = 4 << 20;
/// Linux counts CPUs and nodes up to some thousands.
const HIGHEST_ID: usize = 1 << 16;

/// Fills in what the files below `root` tell.
pub fn read(root: &Path, found: &mut Topology) {
    let cpus = numbered(&root.join("sys/devices/system/cpu"), "cpu");
    read_caches(&cpus, found);
    found.physical_cores = physical_cores(&cpus);
    found.numa = numa(&root.join("sys/devices/system/node"));
    if let Some(text) = text(&root.join("proc/cpuinfo")) {
        found.brand = brand(&text);
        found.model = model(&text);
    }
    let installed = text(&root.join("proc/meminfo")).and_then(|text| kilobytes(&text, "MemTotal:"));
    let allowed = text(&root.join("sys/fs/cgroup/memory.max")).and_then(|text| text.trim().parse().ok());
    found.memory = installed.map(|bytes| allowed.map_or(bytes, |limit: usize| limit.min(bytes)));
}

/// Cache sizes and who shares the third level.
fn read_caches(cpus: &[(usize, std::path::PathBuf)], found: &mut Topology) {
    let mut groups = BTreeSet::new();
    for (_, cpu) in cpus {
        for (_, cache) in numbered(&cpu.join("cache"), "index") {
            let field = |name| text(&cache.join(name)).map(|text| text.trim().to_owned());
            if field("type").is_none_or(|kind| kind == "Instruction") {
                continue;
            }
            let level = match field("level").as_deref() {
                Some("1") => &mut found.caches.l1d,
                Some("2") => &mut found.caches.l2,
                Some("3") => {
                    groups.extend(field("shared_cpu_list").and_then(|list| cpu_list(&list)));
                    &mut found.caches.l3
                }
                _ => continue,
            };
            *level = (*level).max(field("size").and_then(|text| size(&text)));
        }
    }
    found.l3_groups = groups.into_iter().filter(|group| !group.is_empty()).collect();
}

/// Distinct cores, counted by their lowest CPU; none where one of them does not tell.
fn physical_cores(cpus: &[(usize, std::path::PathBuf)]) -> Option<usize> {
    let mut cores = BTreeSet::new();
    for (_, cpu) in cpus {
        let topology = cpu.join("topology");
        // A CPU that is offline has the folder but not the files.
        if let Some(list) = text(&topology.join("thread_siblings_list")) {
            cores.insert(cpu_list(&list)?.first().copied()?);
        }
    }
    Some(cores.len()).filter(|&count| count > 0)
}

fn numa(nodes: &Path) -> Vec<NumaNode> {
    let mut found: Vec<NumaNode> = numbered(nodes, "node")
        .into_iter()
        .filter_map(|(id, node)| {
            let cpus = cpu_list(&text(&node.join("cpulist"))?)?;
            let memory = text(&node.join("meminfo")).and_then(|text| kilobytes(&text, "MemTotal:"));
            Some(NumaNode { id, cpus, memory })
        })
        .collect();
    found.sort_by_key(|node| node.id);
    found
}

/// The entries `prefix0`, `prefix1` … of a folder, in order.
fn numbered(folder: &Path, prefix: &str) -> Vec<(usize, std::path::PathBuf)> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path())).filter(|&(number, _)| number < HIGHEST_ID)
        })
        .collect();
    found.sort();
    found
}

/// A file's text, if it is one of reasonable length.
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// `0-3,8,10-11` as numbers; none if it is anything else.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= HIGHEST_ID {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus.into_iter().collect())
}

/// `32K`, `8M` or plain bytes; none for zero, which means unknown.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// The bytes of a line such as `MemTotal:  1024 kB`, wherever on the line the name is.
fn kilobytes(text: &str, name: &str) -> Option<usize> {
    let rest = text.lines().find_map(|line| line.split_once(name))?.1;
    rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// The value of a field in `/proc/cpuinfo`, of the first processor.
fn cpuinfo<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(field, _)| field.trim() == name)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty() && value.len() < 256)
}

fn brand(text: &str) -> Option<String> {
    cpuinfo(text, "model name").or_else(|| cpuinfo(text, "Hardware")).map(str::to_owned)
}

/// The identity of the design, in the words of each architecture.
fn model(text: &str) -> Option<String> {
    let fields = ["CPU implementer", "CPU variant", "CPU part", "CPU revision"];
    let found: Vec<&str> = fields.iter().filter_map(|name| cpuinfo(text, name)).collect();
    (!found.is_empty()).then(|| found.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Caches;
    use proptest::prelude::*;

    /// A folder that goes away with its test.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("shapewise-topology-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn cache(&self, cpu: usize, index: usize, fields: [&str; 4]) {
            for (name, value) in ["level", "type", "size", "shared_cpu_list"].iter().zip(fields) {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
                self.write(&path, format!("{value}\n"));
            }
        }

        fn read(&self) -> Topology {
            let mut found = Topology::default();
            read(&self.0, &mut found);
            found
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_machine_with_two_threads_per_core_and_two_nodes() {
        let folder = Folder::new("two-nodes");
        for cpu in 0..4 {
            let (core, group) = (cpu % 2, if cpu % 2 == 0 { "0,2" } else { "1,3" });
            folder.cache(cpu, 0, ["1", "Data", "48K", group]);
            folder.cache(cpu, 1, ["1", "Instruction", "64K", group]);
            folder.cache(cpu, 2, ["2", "Unified", "2M", group]);
            folder.cache(cpu, 3, ["3", "Unified", "32768K", group]);
            let siblings = format!("{core},{}\n", core + 2);
            folder.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
        }
        folder.write("sys/devices/system/cpu/cpufreq/policy0", "");
        folder.write("sys/devices/system/node/node1/cpulist", "1,3\n");
        folder.write("sys/devices/system/node/node0/cpulist", "0,2\n");
        folder.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       13722180 kB\n");
        folder.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n\nprocessor\t: 1\n");
        folder.write("proc/meminfo", "MemTotal:       24682280 kB\nMemFree:         1 kB\n");
        let found = folder.read();
        let caches = Caches { l1d: Some(48 << 10), l2: Some(2 << 20), l3: Some(32 << 20) };
        assert_eq!(found.caches, caches);
        assert_eq!(found.l3_groups, [[0, 2], [1, 3]]);
        assert_eq!(found.physical_cores, Some(2));
        let first = NumaNode { id: 0, cpus: vec![0, 2], memory: Some(13_722_180 << 10) };
        assert_eq!(found.numa, [first, NumaNode { id: 1, cpus: vec![1, 3], memory: None }]);
        assert_eq!(found.brand.as_deref(), Some("Some CPU @ 3 GHz"));
        assert_eq!(found.memory, Some(24_682_280 << 10));
        folder.write("sys/fs/cgroup/memory.max", "1048576\n");
        assert_eq!(folder.read().memory, Some(1 << 20));
        folder.write("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(folder.read().memory, Some(24_682_280 << 10));
    }

    #[test]
    fn an_arm_machine_names_its_design() {
        let text = "processor: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        assert_eq!(model(text).as_deref(), Some("0x41 0x3 0xd0c 1"));
        assert_eq!(brand(text), None);
    }

    #[test]
    fn nothing_and_nonsense_tell_nothing() {
        let folder = Folder::new("nonsense");
        assert_eq!(folder.read(), Topology::default());
        folder.cache(0, 0, ["1", "Data", "-32K", "0"]);
        folder.cache(0, 1, ["2", "Unified", "99999999999999999999K", "0"]);
        folder.cache(0, 2, ["3", "Unified", "18446744073709551615M", "0-999999999999"]);
        folder.cache(1, 0, ["one", "Data", "32K", "1"]);
        folder.write("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "3-1\n");
        folder.write("sys/devices/system/cpu/cpu99999999999/topology/thread_siblings_list", "0\n");
        folder.write("sys/devices/system/node/node0/cpulist", [0xff, 0xfe, 0x00]);
        folder.write("proc/cpuinfo", "model name\nmodel name :\n: :\n");
        folder.write("proc/meminfo", "MemTotal: many kB\n");
        folder.write("sys/fs/cgroup/memory.max", "5");
        assert_eq!(folder.read(), Topology::default());
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cpu_list("2,0-2"), Some(vec![0, 1, 2]));
        assert_eq!(cpu_list(""), Some(vec![]), "a node without CPUs");
        for wrong in ["a", "1-", "-1", "3-1", "1-2-3", "0-18446744073709551615", "70000"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,200}") {
            cpu_list(&text);
            size(&text);
            kilobytes(&text, "MemTotal:");
            brand(&text);
            model(&text);
        }
    }
}

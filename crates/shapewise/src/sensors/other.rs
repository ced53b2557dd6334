//! Load and memory on macOS and Windows, as the crate `sysinfo` reads them. Heat, power, clocks and batteries are not read there.

use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate};

use super::SystemState;

/// What the system told last.
pub(super) struct System {
    /// `None` where the system cannot be asked.
    asked: Option<sysinfo::System>,
    /// Shares of time need two samples.
    before: bool,
}

impl Default for System {
    fn default() -> Self {
        Self { asked: sysinfo::System::new().ok(), before: false }
    }
}

impl System {
    /// Fills in load and memory.
    pub fn read(&mut self, state: &mut SystemState) {
        let Some(system) = &mut self.asked else { return };
        system.refresh_cpu_usage();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let own = Pid::from_u32(std::process::id());
        let only = ProcessRefreshKind::nothing().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, only);
        state.memory_total = Some(system.total_memory()).filter(|&bytes| bytes > 0);
        state.memory_available = Some(system.available_memory()).filter(|&bytes| bytes > 0);
        if self.before {
            let cores = system.cpus().len().max(1) as f64;
            let share = |percent: f32| (f64::from(percent) / 100.0).clamp(0.0, 1.0);
            state.load = Some(share(system.global_cpu_usage()));
            // A process may use every core at once, and each counts a hundred percent.
            let used = system.process(own).map(|process| f64::from(process.cpu_usage()) / 100.0 / cores);
            state.own_load = used.map(|share| share.clamp(0.0, 1.0));
        }
        self.before = true;
    }
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("System")
    }
}

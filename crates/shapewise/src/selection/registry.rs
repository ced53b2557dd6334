//! All kernels: the built-in lists and what users add at run time.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};
use crate::ops::{Kernel, OperationKind};

/// A kernel, built in or a user's own.
#[derive(Clone)]
pub enum KernelHandle {
    /// Part of the library.
    BuiltIn(&'static dyn Kernel),
    /// Registered at run time.
    Custom(Arc<dyn Kernel>),
}

impl KernelHandle {
    /// Whether a user registered it.
    pub fn is_custom(&self) -> bool {
        matches!(self, Self::Custom(_))
    }
}

impl Deref for KernelHandle {
    type Target = dyn Kernel;

    #[inline]
    fn deref(&self) -> &(dyn Kernel + 'static) {
        match self {
            Self::BuiltIn(kernel) => *kernel,
            Self::Custom(kernel) => kernel.as_ref(),
        }
    }
}

/// The kernels a runtime may choose from.
#[derive(Default)]
pub struct KernelRegistry {
    custom: RwLock<Vec<Arc<dyn Kernel>>>,
    quarantine: RwLock<HashMap<String, String>>,
    generation: AtomicU64,
    /// The generation that each user's kernel came with: what is known of an older one of its name does not count.
    births: RwLock<HashMap<String, u64>>,
}

impl KernelRegistry {
    /// The built-in lists, and kernels of devices that were opened: they are checked like a user's before they may win,
    /// because a driver may be wrong.
    pub(crate) fn with(kernels: Vec<Arc<dyn Kernel>>) -> Self {
        Self { custom: RwLock::new(kernels), ..Self::default() }
    }

    /// Adds a kernel; an error if its name is taken.
    pub fn register(&self, kernel: Arc<dyn Kernel>) -> Result<()> {
        let name = kernel.name().to_owned();
        if name.is_empty() {
            return Err(invalid("a kernel needs a name such as `cpu::matmul::mine`".into()));
        }
        let mut custom = write(&self.custom);
        let built_in = OperationKind::ALL.iter().flat_map(|o| o.kernels()).any(|k| k.name() == name);
        if built_in || custom.iter().any(|k| k.name() == name) {
            return Err(invalid(format!("`{name}` is registered already; use `replace`, or another name")));
        }
        self.born(&name);
        custom.push(kernel);
        drop(custom);
        self.changed();
        Ok(())
    }

    /// Puts a kernel in the place of the user's kernel of the same name and lifts its quarantine.
    pub fn replace(&self, kernel: Arc<dyn Kernel>) -> Result<()> {
        let mut custom = write(&self.custom);
        let slot = custom.iter_mut().find(|k| k.name() == kernel.name()).ok_or_else(|| {
            invalid(format!("no kernel of yours is called `{}`; `register` it", kernel.name()))
        })?;
        write(&self.quarantine).remove(kernel.name());
        self.born(kernel.name());
        *slot = kernel;
        drop(custom);
        self.changed();
        Ok(())
    }

    /// Removes a user's kernel.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut custom = write(&self.custom);
        let before = custom.len();
        custom.retain(|k| k.name() != name);
        if custom.len() == before {
            return Err(invalid(format!("no kernel of yours is called `{name}`; built-in kernels stay")));
        }
        write(&self.quarantine).remove(name);
        drop(custom);
        self.changed();
        Ok(())
    }

    /// Every kernel of an operation: the user's first, then the built-in list with the reference last.
    pub fn kernels(&self, operation: OperationKind) -> Vec<KernelHandle> {
        let custom = read(&self.custom);
        let own = custom.iter().filter(|k| k.operation() == operation).cloned().map(KernelHandle::Custom);
        own.chain(operation.kernels().iter().map(|&k| KernelHandle::BuiltIn(k))).collect()
    }

    /// Takes a kernel out of every further choice because the user says so.
    pub fn set_aside(&self, name: &str, reason: &str) -> Result<()> {
        let known = |o: &OperationKind| self.kernels(*o).iter().any(|k| k.name() == name);
        if !OperationKind::ALL.iter().any(known) {
            return Err(invalid(format!("no kernel is called `{name}`")));
        }
        self.quarantine(name, reason.to_owned());
        Ok(())
    }

    /// Takes a kernel out of every further choice.
    pub(crate) fn quarantine(&self, name: &str, reason: String) {
        tracing::warn!(kernel = name, reason, "kernel quarantined");
        write(&self.quarantine).insert(name.to_owned(), reason);
        self.changed();
    }

    /// Whether any kernel is out.
    pub(crate) fn has_quarantined(&self) -> bool {
        !read(&self.quarantine).is_empty()
    }

    /// Why a kernel is out, if it is.
    pub fn quarantined(&self, name: &str) -> Option<String> {
        read(&self.quarantine).get(name).cloned()
    }

    /// Counts the changes; decisions of an older generation are stale.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The generation that a user's kernel came with.
    pub(crate) fn birth(&self, name: &str) -> u64 {
        read(&self.births).get(name).copied().unwrap_or(0)
    }

    fn born(&self, name: &str) {
        write(&self.births).insert(name.to_owned(), self.generation() + 1);
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { operation: "kernel registry", reason }
}

// A panic while the lock was held cannot leave the lists half-changed, so poisoning carries no news.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

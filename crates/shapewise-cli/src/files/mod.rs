//! Tensors in files: `.npy` and `.safetensors`.

mod bytes;
mod npy;
mod safe;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use shapewise::Tensor;

/// Reads `FILE.npy`, `FILE.safetensors` with one tensor in it, or `FILE.safetensors:NAME`.
pub fn read(argument: &str) -> Result<Tensor> {
    let (path, name) = split(argument);
    let kind = kind(&path)?;
    let bytes = std::fs::read(&path)
        .with_context(|| format!("{} cannot be read; check the name and the permissions", path.display()))?;
    let tensor = match kind {
        Kind::Npy => npy::parse(&bytes),
        Kind::Safetensors => safe::parse(&bytes, name),
    };
    tensor.with_context(|| format!("{} cannot be used", path.display()))
}

/// Writes a tensor in the form that the file's name says.
pub fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    let bytes = match kind(path)? {
        Kind::Npy => npy::format(tensor)?,
        Kind::Safetensors => safe::format(tensor)?,
    };
    std::fs::write(path, bytes).with_context(|| {
        format!("{} cannot be written; check the folder and its permissions", path.display())
    })
}

/// Refuses a name that cannot be written, before anything is computed.
pub fn check_output(path: &Path) -> Result<()> {
    kind(path).map(drop)
}

#[derive(Clone, Copy)]
enum Kind {
    Npy,
    Safetensors,
}

fn kind(path: &Path) -> Result<Kind> {
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => Ok(Kind::Npy),
        Some("safetensors") => Ok(Kind::Safetensors),
        _ => bail!("{} is neither .npy nor .safetensors; use one of these", path.display()),
    }
}

/// The file and the tensor's name after a colon.
fn split(argument: &str) -> (PathBuf, Option<&str>) {
    match argument.rsplit_once(".safetensors:") {
        Some((front, name)) => (format!("{front}.safetensors").into(), Some(name)),
        None => (argument.into(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_behind_a_colon() {
        assert_eq!(split("a/b.safetensors:w.1"), ("a/b.safetensors".into(), Some("w.1")));
        assert_eq!(split("c:b.npy"), ("c:b.npy".into(), None));
        assert!(kind(Path::new("x.txt")).is_err() && kind(Path::new("npy")).is_err());
    }
}

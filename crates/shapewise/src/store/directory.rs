//! Where things are kept.

use std::ffi::OsString;
use std::path::PathBuf;

/// `SHAPEWISE_CACHE_DIR`, or the folder for this program in the platform's cache directory; none where there is none.
pub fn cache_directory() -> Option<PathBuf> {
    directory(std::env::consts::OS, |name| std::env::var_os(name))
}

fn directory(system: &str, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    if let Some(chosen) = path("SHAPEWISE_CACHE_DIR") {
        return Some(chosen);
    }
    let base = match system {
        "windows" => path("LOCALAPPDATA"),
        "macos" => path("HOME").map(|home| home.join("Library").join("Caches")),
        // The XDG rules say to ignore a relative path.
        _ => path("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| path("HOME").map(|home| home.join(".cache"))),
    };
    base.map(|base| base.join("shapewise"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(system: &str, variables: &[(&str, &str)]) -> Option<String> {
        let lookup =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        directory(system, lookup).map(|path| path.to_string_lossy().into_owned())
    }

    #[test]
    #[cfg(unix)]
    fn every_platform_has_its_place() {
        let home = ("HOME", "/home/u");
        assert_eq!(found("linux", &[home]).as_deref(), Some("/home/u/.cache/shapewise"));
        assert_eq!(found("linux", &[home, ("XDG_CACHE_HOME", "/c")]).as_deref(), Some("/c/shapewise"));
        assert_eq!(
            found("linux", &[home, ("XDG_CACHE_HOME", "c")]).as_deref(),
            Some("/home/u/.cache/shapewise")
        );
        assert_eq!(found("macos", &[home]).as_deref(), Some("/home/u/Library/Caches/shapewise"));
        assert_eq!(found("windows", &[("LOCALAPPDATA", "/l")]).as_deref(), Some("/l/shapewise"));
        assert_eq!(found("windows", &[home]), None);
        assert_eq!(found("linux", &[("HOME", "")]), None);
    }

    #[test]
    fn the_variable_overrides() {
        assert_eq!(found("linux", &[("SHAPEWISE_CACHE_DIR", "x"), ("HOME", "/h")]).as_deref(), Some("x"));
        assert_eq!(found("linux", &[("SHAPEWISE_CACHE_DIR", "")]), None);
    }
}

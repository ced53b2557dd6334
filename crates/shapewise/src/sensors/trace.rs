//! States that were recorded, to be looked at later or played to something that adapts to them.

use std::io::{BufRead, Write};

use super::{Sensors, SystemState};

/// States in the order they were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The states.
    pub states: Vec<SystemState>,
}

/// A recording that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file or stream failed.
    #[error("the recording cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not a state.
    #[error("line {line} of the recording is not a state: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// What is wrong with it.
        reason: serde_json::Error,
    },
}

impl Trace {
    /// Reads a recording: one JSON object a line; empty lines are passed over.
    pub fn read(from: impl BufRead) -> Result<Self, TraceError> {
        let mut states = Vec::new();
        for (i, line) in from.lines().enumerate() {
            let line = line?;
            if !line.trim().is_empty() {
                let state = serde_json::from_str(&line);
                states.push(state.map_err(|reason| TraceError::Line { line: i + 1, reason })?);
            }
        }
        Ok(Self { states })
    }

    /// Writes it so that [`Trace::read`] gives it back.
    pub fn write(&self, mut to: impl Write) -> Result<(), TraceError> {
        for state in &self.states {
            let line = serde_json::to_string(state).map_err(std::io::Error::other)?;
            writeln!(to, "{line}")?;
        }
        Ok(())
    }

    /// Sensors that tell these states one after the other, and then the last one for ever.
    pub fn replay(self) -> Replay {
        Replay { states: self.states, next: 0 }
    }
}

/// Sensors that tell what was recorded.
#[derive(Debug)]
pub struct Replay {
    states: Vec<SystemState>,
    next: usize,
}

impl Sensors for Replay {
    fn sample(&mut self) -> SystemState {
        let state = self.states.get(self.next).or(self.states.last()).cloned().unwrap_or_default();
        self.next += 1;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_comes_back_as_it_was() {
        let state = |temperature| SystemState {
            temperature: Some(temperature),
            on_battery: Some(true),
            ..Default::default()
        };
        let trace = Trace { states: vec![state(60.5), SystemState::default(), state(99.0)] };
        let mut file = Vec::new();
        trace.write(&mut file).unwrap();
        assert_eq!(Trace::read(&file[..]).unwrap(), trace);
        let mut replay = trace.replay();
        let told: Vec<_> = (0..5).map(|_| replay.sample().temperature).collect();
        assert_eq!(told, [Some(60.5), None, Some(99.0), Some(99.0), Some(99.0)]);
    }

    #[test]
    fn a_line_that_is_no_state_is_named() {
        let error = Trace::read(&b"{\"load\":0.5}\n\n{\"load\":\"much\"}\n"[..]).unwrap_err();
        assert!(error.to_string().starts_with("line 3 of the recording"), "{error}");
        assert_eq!(Trace::default().replay().sample(), SystemState::default());
    }
}

//! Exit codes, in one place.

use stagger_core::view::RunVerdict;

/// How the program ended. The numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, or nothing to do.
    Done,
    /// The answer is no, or the run ended elsewhere than at its target.
    No,
    /// Wrong use or configuration.
    Usage,
    /// A person must act before it can go on.
    NeedsYou,
    /// Cluster, network or database out of reach.
    Unreachable,
    /// A bug.
    Internal,
    /// As much was done as was to be done at once, and more is left.
    More,
    /// The run is not over, and nobody carries it out.
    Abandoned,
    /// All went well, but what was printed could not be written.
    Unwritten,
    /// Interrupted.
    Interrupted,
}

impl Exit {
    /// With which a command ends that shows a run.
    pub(crate) fn of(verdict: RunVerdict) -> Self {
        match verdict {
            RunVerdict::NeedsYou => Self::NeedsYou,
            RunVerdict::Ended => Self::No,
            RunVerdict::Interrupted => Self::Abandoned,
            RunVerdict::Running | RunVerdict::Held | RunVerdict::Done => Self::Done,
        }
    }

    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::NeedsYou => 3,
            Self::Unreachable => 4,
            Self::Internal => 5,
            Self::More => 6,
            Self::Abandoned => 7,
            Self::Unwritten => 8,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_book() {
        let all = [
            (Exit::Done, 0),
            (Exit::No, 1),
            (Exit::Usage, 2),
            (Exit::NeedsYou, 3),
            (Exit::Unreachable, 4),
            (Exit::Internal, 5),
            (Exit::More, 6),
            (Exit::Abandoned, 7),
            (Exit::Unwritten, 8),
            (Exit::Interrupted, 130),
        ];
        for (exit, code) in all {
            assert_eq!(exit.code(), code);
        }
    }
}

//! The screen of `watch`: its content, its keys, and its drawing.

mod draw;
mod keys;
#[cfg(test)]
mod tests;

pub(crate) use draw::draw;
pub(crate) use keys::{KeyAction, key};

use stagger_core::run::Command;
use stagger_core::view::RunView;
use stagger_report::Reading;
use stagger_report::forecast::RunForecast;

/// What the screen shows of a run.
#[derive(Debug)]
pub(crate) struct ScreenData {
    /// At a glance.
    pub(crate) view: RunView,
    /// How long the rest takes by earlier runs; `None`: nothing is known of these.
    pub(crate) left: Option<RunForecast>,
    /// As far as its journal was read.
    pub(crate) read: Reading,
    /// The words that a person may still approve by.
    pub(crate) words: Vec<String>,
    /// Why nothing newer could be read, if that is so.
    pub(crate) unread: Option<String>,
}

/// What the person at the terminal looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    /// How far the journal is scrolled back from its end, in lines.
    pub(crate) back: usize,
    /// Only lines that hold this are shown; empty: all.
    pub(crate) filter: String,
    /// What keys are for now.
    pub(crate) mode: Mode,
    /// What the last action came to.
    pub(crate) told: Option<String>,
}

/// What keys are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// To scroll and to choose.
    #[default]
    Look,
    /// To type what the journal is filtered by.
    Filter,
    /// To type the name of a unit.
    Unit(String),
    /// To type which word is approved: nothing is chosen for anybody.
    Word(String),
    /// To leave what is told of a unit.
    Told(String),
    /// To answer whether that is meant.
    Sure(Command),
}

//! The fragments of a run's page that depend on its journal alone: rendered once for each state of the
//! journal, for all readers.

pub(crate) mod parts;
pub(crate) mod units;

use maud::Markup;
use stagger_core::view;
use stagger_report::page::{RunReport, sections};
use stagger_report::{Reading, Verification};

use parts::PagePart;
use units::Map;

/// Parts of the page, and the map.
pub(crate) struct PageFragments {
    /// How many units are in each state.
    pub(crate) counts: PagePart,
    /// Waves, waits, decisions, guards, laws.
    pub(crate) sections: Vec<PagePart>,
    /// The place for the map.
    pub(crate) map: Markup,
    /// A digit for the state of each unit.
    pub(crate) states: String,
    /// The map for a script, as JSON.
    pub(crate) layout: String,
}

impl PageFragments {
    pub(crate) fn of(reading: &Reading, verification: Option<&Verification>) -> Self {
        let map = Map::of(&reading.history);
        let view = view::run(&reading.run, None);
        let sections = verification.map_or_else(Vec::new, |verification| {
            sections(&RunReport {
                // The store is read for this run alone.
                forecasts: None,
                view: &view,
                history: &reading.history,
                verification,
                lines: &[],
                broken: None,
                look_back: &[],
                version: env!("CARGO_PKG_VERSION"),
            })
        });
        Self {
            counts: PagePart::new("counts", &map.counts()),
            sections: sections
                .iter()
                .map(|(name, content)| PagePart::new(name.as_str(), content))
                .collect(),
            map: map.container(reading.history.run.as_str()),
            states: map.states(),
            // Names, words and lists: nothing of it fails to be written.
            layout: serde_json::to_string(&map.layout()).unwrap_or_default(),
        }
    }
}

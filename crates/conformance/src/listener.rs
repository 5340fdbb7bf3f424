//! The journal of a test, printed where somebody asks for it.

use jiff::Timestamp;
use stagger_core::run::{Entry, Run};
use stagger_core::view::Waiting;
use stagger_engine::driver::Listener;

/// Prints each event if `TALK` is set in the environment; with `TALK=2` also what is waited for.
#[derive(Debug, Clone, Copy, Default)]
pub struct JournalPrinter;

impl Listener for JournalPrinter {
    fn event(&mut self, entry: &Entry, _run: &Run) {
        if std::env::var_os("TALK").is_some() {
            let text = serde_json::to_string(&entry.event).unwrap();
            let text: String = text.chars().take(300).collect();
            println!("{:.0} {} {text}", entry.at, entry.seq);
        }
    }

    fn waiting(&mut self, until: Timestamp, waiting: Waiting<'_>, _run: &Run) {
        if std::env::var_os("TALK").is_some_and(|much| much == "2") {
            println!("   until {until:.0}: {}", waiting.why);
        }
    }
}

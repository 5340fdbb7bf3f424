//! The documents that stagger stores and sends, and their versions in each release.
//!
//! All of it goes through [`stagger_versioned`]: it is written in the version of the manifest (`releases.toml`), and
//! read in the version in which it was written. What was stored before anybody wrote versions down is of version 1.0.

use std::sync::{Arc, LazyLock};

use stagger_versioned::chain::Unreadable;
use stagger_versioned::{Chain, Child, Declared, Manifest, Pin, Row, Version, Versioned};

use crate::model::Snapshot;
use crate::plan::Plan;
use crate::run::{Command, Event};
use crate::view::RunView;

#[expect(
    clippy::expect_used,
    reason = "it is part of the program, and a test reads it"
)]
static MANIFEST: LazyLock<Arc<Manifest>> = LazyLock::new(|| {
    let declared: Result<Declared, _> = toml::from_str(include_str!("../releases.toml"));
    Arc::new(Manifest::new(declared.expect("the manifest is TOML")).expect("the manifest has no faults"))
});

/// The releases of stagger.
pub fn manifest() -> Arc<Manifest> {
    Arc::clone(&MANIFEST)
}

/// The newest of everything.
pub fn unpinned() -> Pin {
    Pin::none(manifest())
}

/// An object of stagger's own that is stored or sent.
pub trait Own: Versioned {
    /// All its versions.
    fn chain() -> &'static Arc<Chain<Self>>;
}

/// A chain that begins with what was stored without a version. Later versions are added with `then`.
macro_rules! own {
    ($object:ty, $name:literal, $version:expr, [$($child:ty),*], $chain:expr) => {
        impl Versioned for $object {
            const NAME: &'static str = $name;
            const VERSION: Version = $version;
            const CHILDREN: &'static [Child] = &[$(Child::of::<$child>()),*];
        }

        impl Own for $object {
            fn chain() -> &'static Arc<Chain<Self>> {
                static CHAIN: LazyLock<Arc<Chain<$object>>> = LazyLock::new(|| Arc::new($chain));
                &CHAIN
            }
        }
    };
}

own!(
    Command,
    "command",
    document_version(1),
    [],
    Chain::first().rows_without_version_are_these()
);
own!(
    Event,
    "event",
    document_version(1),
    [Command, Plan],
    Chain::first().rows_without_version_are_these()
);
own!(
    Plan,
    "plan",
    document_version(Plan::VERSION),
    [],
    Chain::first().rows_without_version_are_these()
);
own!(
    RunView,
    "run",
    document_version(RunView::VERSION),
    [],
    Chain::first().rows_without_version_are_these()
);
own!(
    Snapshot,
    "snapshot",
    document_version(1),
    [],
    Chain::first().rows_without_version_are_these()
);

/// The version of a document with that number in its head. Documents are counted 1, 2, 3: that is 1.0, 1.1, 1.2.
pub const fn document_version(number: u32) -> Version {
    match number.checked_sub(1) {
        Some(minor) => Version::new(1, minor),
        // Nothing has that number, so nothing knows it.
        None => Version::new(0, 0),
    }
}

/// Reads a document with that number in its head; `None` if it has no head, as those of earlier builds.
///
/// # Errors
/// It is of a release that this one does not know, or it is not as its version should be.
pub fn document<T: Own>(
    number: Option<u32>,
    fields: serde_json::Map<String, serde_json::Value>,
) -> Result<T, Unreadable> {
    let row = Row {
        version: number.map(document_version),
        fields,
    };
    Ok(T::chain().load(row)?.held.value)
}

#[cfg(test)]
mod tests {
    use stagger_versioned::Held;

    use super::*;

    #[test]
    fn the_manifest_has_no_faults_and_lists_what_is_stored() {
        let manifest = manifest();
        let current = manifest.current();
        for (name, version) in [
            (Command::NAME, <Command as Versioned>::VERSION),
            (Event::NAME, <Event as Versioned>::VERSION),
            (Plan::NAME, <Plan as Versioned>::VERSION),
            (RunView::NAME, <RunView as Versioned>::VERSION),
            (Snapshot::NAME, <Snapshot as Versioned>::VERSION),
        ] {
            assert_eq!(manifest.writes(current, name), Some(version), "{name}");
        }
    }

    #[test]
    fn an_event_is_written_with_its_version_and_read_with_it_or_without() {
        let held = Held::new(Event::WavePassed);
        let written = Event::chain().save_text(&held, &unpinned()).unwrap();
        assert_eq!(
            (written.version, written.data.as_str()),
            (Version::new(1, 0), r#"{"event":"wave-passed"}"#)
        );
        for version in [Some(written.version), None] {
            let read = Event::chain().load_text(version, &written.data).unwrap();
            assert_eq!(read.value, Event::WavePassed);
        }
        let error = Event::chain()
            .load_text(Some(Version::new(1, 1)), r#"{"event":"wave-turned"}"#)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "event 1.1 comes from a later release: this code knows event up to 1.0"
        );
    }

    #[test]
    fn documents_are_counted_from_one() {
        assert_eq!(document_version(1), Version::new(1, 0));
        assert_eq!(document_version(3), Version::new(1, 2));
        let newer = document::<Plan>(Some(2), serde_json::Map::new()).unwrap_err();
        assert!(matches!(newer, Unreadable::FromTheFuture { .. }), "{newer}");
        let none = document::<Plan>(Some(0), serde_json::Map::new()).unwrap_err();
        assert!(matches!(none, Unreadable::Forgotten { .. }), "{none}");
    }
}

//! The four boundaries. Inside a process an object always has its newest version; it is converted only here.
//!
//! | boundary | version |
//! |---|---|
//! | from the store ([`Chain::load`]) | up to the newest, whatever the pin; the next save writes what the conversion changed |
//! | to the store ([`Chain::save`], [`Chain::create`]) | the pin's, or the row's own if that is newer; a new row has none of its own |
//! | sent ([`Chain::send`]) | the pin's, or the object's own if that is newer, but none that the other side does not read |
//! | received ([`Chain::receive`]) | up to the newest; a newer one is requested again ([`Chain::backport`]) |
//!
//! A row never goes back to an older version: a pinned process that changes a row of an unpinned one writes
//! it in the row's version, and loses nothing.

use serde_json::{Map, Value};

use crate::Version;
use crate::chain::{Chain, Converted, Source, Unreadable, Unwritten, not_representable};
use crate::envelope;
use crate::loss::{Loss, differences, loss_list};
use crate::object::{UnknownFields, Versioned};
use crate::pin::{NotWhilePinned, Pin};
use crate::unknown_fields::{carry_over, put_back};

/// An object, and in which version it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Held<T> {
    /// The object, in the newest version.
    pub value: T,
    came: Option<Version>,
    /// The fields as they came, where the newest version has no place for some. Services of an older release may still use
    /// those, so what nobody changed here goes back as it came wherever it leaves in a version that has it.
    origin: Option<Map<String, Value>>,
    /// The fields as they came, where its type keeps those that it does not know and there are some.
    kept: Option<Kept>,
}

/// What came with fields that are not known.
#[derive(Debug, Clone, PartialEq)]
struct Kept {
    fields: Map<String, Value>,
    /// Which are not known, as JSON pointers.
    unknown: Vec<String>,
}

impl<T> Held<T> {
    /// An object that was made here.
    pub fn new(value: T) -> Self {
        Self {
            value,
            came: None,
            origin: None,
            kept: None,
        }
    }

    /// The version in which it was stored or sent; `None` if it was made here.
    pub fn stored_version(&self) -> Option<Version> {
        self.came
    }
}

/// A row as it stands in a store: the columns of an object, and the version in which they are to be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The version column.
    pub version: Option<Version>,
    /// The other columns by name, those of other versions too.
    pub fields: Map<String, Value>,
}

/// An object from a store, with the row that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored<T> {
    /// The object. Change its value, then save it.
    pub held: Held<T>,
    row: Row,
}

impl<T> Stored<T> {
    /// The row as it was read.
    pub fn row(&self) -> &Row {
        &self.row
    }
}

/// What has to be written to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The version that the row must still have, for nobody may have written it meanwhile in another. The outer `None` is a
    /// row that is not there yet, the inner one a row without a version.
    pub was: Option<Option<Version>>,
    /// The version that it gets.
    pub version: Version,
    /// The columns that change, all of them known to that version.
    pub set: Map<String, Value>,
}

impl Write {
    /// Whether the row stands already as it should.
    pub fn is_unchanged(&self) -> bool {
        self.set.is_empty() && self.was == Some(Some(self.version))
    }
}

/// An object that is neither written nor sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsaved {
    /// It has what the pin does not know.
    #[error(transparent)]
    NotWhilePinned(#[from] NotWhilePinned),
    /// It came with what this code has no place for, and that cannot go back to where it was.
    #[error(
        "{object} came with what this code has no place for and services of an older release may still use, and as it was \
         changed it would lose that in version {version} ({}); nothing was stored or sent: try again when the upgrade is done",
        loss_list(lost)
    )]
    Unkept {
        /// The object.
        object: String,
        /// The version that it was to be written in.
        version: Version,
        /// What would be lost.
        lost: Vec<Loss>,
    },
    /// It cannot be written in the version that it has to have.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

/// An object on its way to another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The envelope, as JSON.
    pub text: String,
    /// The version that it is in.
    pub version: Version,
    /// What does not fit into that version, and so is not in it.
    pub lost: Vec<Loss>,
}

/// An object that was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreceived {
    /// It is no envelope.
    #[error("what was received is no object in an envelope: {why}")]
    NoEnvelope {
        /// What the parser says.
        why: String,
    },
    /// It is another object.
    #[error("{expected} was expected, and {kind} was received")]
    OtherKind {
        /// What was expected.
        expected: String,
        /// What came.
        kind: String,
    },
    /// It is newer than this code. The sender knows how to send it in the version that is named.
    #[error("{object} {version} is newer than this code; ask the sender for {ask_for}")]
    Newer {
        /// The object.
        object: String,
        /// Its version.
        version: Version,
        /// What to ask the sender for.
        ask_for: Version,
    },
    /// It is too old, or malformed.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// An object that could not be brought to an older version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotBackported {
    /// It was not understood here either.
    #[error(transparent)]
    Unreceived(#[from] Unreceived),
    /// It cannot be written in that version.
    #[error(transparent)]
    Unwritten(#[from] Unwritten),
}

impl<T: Versioned> Chain<T> {
    /// Reads a row, in the version that it has.
    pub fn load(&self, row: Row) -> Result<Stored<T>, Unreadable> {
        let version = row
            .version
            .or(self.without_version())
            .ok_or_else(|| Unreadable::NoVersion {
                object: T::NAME.to_owned(),
            })?;
        if !self.can_write(version) {
            return Err(self.unknown(version));
        }
        let value = self.read(version, Source::Fields(&row.fields))?;
        let origin = self.removed(version).then(|| row.fields.clone());
        Ok(Stored {
            held: Held {
                value,
                came: Some(version),
                origin,
                kept: None,
            },
            row,
        })
    }

    /// What has to be written so that the row holds the object: in the pin's version, or in the row's own if that is newer.
    /// One that was received newer than both keeps its version.
    pub fn save(&self, stored: &Stored<T>, pin: &Pin) -> Result<Write, Unsaved> {
        let Stored { held, row } = stored;
        let version = Self::target(held.came.max(row.version), pin)?;
        let mut set = self.encode_all(held, version, pin)?;
        let emptied = self.lost_columns(version, &row.fields, &set)?;
        set.retain(|column, value| row.fields.get(column).unwrap_or(&Value::Null) != value);
        set.extend(emptied.into_iter().map(|column| (column, Value::Null)));
        Ok(Write {
            was: Some(row.version),
            version,
            set,
        })
    }

    /// The same object once that is written: the row is then as it is read again.
    pub fn written(&self, stored: &mut Stored<T>, write: Write) {
        let Stored { held, row } = stored;
        let Write { version, set, .. } = write;
        row.version = Some(version);
        row.fields.extend(set);
        held.came = Some(version);
        held.origin = self.removed(version).then(|| row.fields.clone());
        held.kept = None;
    }

    /// What has to be written for an object that the store does not have yet: in the pin's version, in whichever it came.
    pub fn create(&self, held: &Held<T>, pin: &Pin) -> Result<Write, Unsaved> {
        let version = Self::target(None, pin)?;
        Ok(Write {
            was: None,
            version,
            set: self.encode_all(held, version, pin)?,
        })
    }

    /// Columns that the version reads, and of which the object has nothing to write: a field may be left out where it is
    /// empty. Columns of other versions are none of them.
    fn lost_columns(
        &self,
        version: Version,
        row: &Map<String, Value>,
        data: &Map<String, Value>,
    ) -> Result<Vec<String>, Unwritten> {
        let left = row
            .iter()
            .filter(|(column, value)| !value.is_null() && !data.contains_key(*column));
        let mut left: Vec<(String, Value)> = left
            .map(|(column, value)| (column.clone(), value.clone()))
            .collect();
        if left.is_empty() {
            return Ok(Vec::new());
        }
        let mut row = data.clone();
        row.extend(left.iter().cloned());
        let read = self.raise(&row, version, version).map_err(|error| {
            not_representable::<T>(version, format!("in its row it would not be read again: {error}"))
        })?;
        left.retain(|(column, _)| read.contains_key(column));
        Ok(left.into_iter().map(|(column, _)| column).collect())
    }

    /// Reads an object that a store keeps as one text of JSON, with its version beside it.
    pub fn load_text(&self, version: Option<Version>, text: &str) -> Result<Held<T>, Unreadable> {
        let version = version
            .or(self.without_version())
            .ok_or_else(|| Unreadable::NoVersion {
                object: T::NAME.to_owned(),
            })?;
        let value = self.read(version, Source::Text(text))?;
        self.held(value, version, text)
    }

    /// An object that was read from that text, with what has to go out again as it came.
    fn held(&self, value: T, version: Version, text: &str) -> Result<Held<T>, Unreadable> {
        let origin = if self.removed(version) {
            serde_json::from_str(text).ok()
        } else {
            None
        };
        Ok(Held {
            value,
            came: Some(version),
            origin,
            kept: self.unknown_parts(version, text)?,
        })
    }

    /// What is not known of a text, if its type asks for that.
    fn unknown_parts(&self, version: Version, text: &str) -> Result<Option<Kept>, Unreadable> {
        if T::UNKNOWN_FIELDS == UnknownFields::Dropped {
            return Ok(None);
        }
        let unknown = self.unknown_in(version, text);
        if unknown.is_empty() {
            return Ok(None);
        }
        let malformed = |why: String| Unreadable::Malformed {
            object: T::NAME.to_owned(),
            version,
            why,
        };
        if T::UNKNOWN_FIELDS == UnknownFields::Refused {
            let unknown = unknown.join(", ");
            return Err(malformed(format!("this version has no {unknown}")));
        }
        let fields = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
        Ok(Some(Kept { fields, unknown }))
    }

    /// That text: in the pin's version, or in the object's own if that is newer. All of it, or a refusal.
    pub fn save_text(&self, held: &Held<T>, pin: &Pin) -> Result<Converted<String>, Unsaved> {
        let version = Self::target(held.came, pin)?;
        let converted = self.in_text(held, version)?;
        if converted.lost.is_empty() {
            return Ok(converted);
        }
        Err(self.refusal(held, version, pin, converted.lost))
    }

    /// All of it, or a refusal.
    fn encode_all(&self, held: &Held<T>, version: Version, pin: &Pin) -> Result<Map<String, Value>, Unsaved> {
        let Converted { data, lost, .. } = self.in_fields(held, version)?;
        if lost.is_empty() {
            return Ok(data);
        }
        Err(self.refusal(held, version, pin, lost))
    }

    /// The version in which it leaves this process where nobody asks for another. `own` is the one that it has out there.
    fn target(own: Option<Version>, pin: &Pin) -> Result<Version, NotWhilePinned> {
        match (pin.target(T::NAME), own) {
            (Ok(None), _) => Ok(T::VERSION),
            (Ok(Some(pinned)), own) => Ok(own.map_or(pinned, |own| own.max(pinned))),
            // The pin does not know the object, but somebody without that pin wrote it.
            (Err(_), Some(own)) => Ok(own),
            (Err(refused), None) => Err(refused),
        }
    }

    /// Why it cannot go out in that version.
    fn refusal(&self, held: &Held<T>, version: Version, pin: &Pin, lost: Vec<Loss>) -> Unsaved {
        match self.needs(&held.value) {
            Ok(needs) if needs <= version => Unsaved::Unkept {
                object: T::NAME.to_owned(),
                version,
                lost,
            },
            Ok(needs) => pin.refusal(T::NAME, needs, lost).into(),
            Err(why) => why.into(),
        }
    }

    /// Makes it ready for another process, in the version of the pin, or in its own if that is newer. `reads` is the highest
    /// version that the other side says it reads; it gets no newer one. See what is [`lost`](Sent::lost): [`Chain::answer`]
    /// and [`Chain::send_whole`] do, and refuse.
    pub fn send(&self, held: &Held<T>, pin: &Pin, reads: Option<Version>) -> Result<Sent, Unsaved> {
        let version = Self::target(held.came, pin)?;
        let version = reads.map_or(version, |reads| reads.min(version));
        Ok(self.sent(held, version)?)
    }

    /// The same, for one who must not lose anything on the way: what does not fit is a refusal.
    pub fn send_whole(&self, held: &Held<T>, pin: &Pin, reads: Option<Version>) -> Result<Sent, Unsaved> {
        let sent = self.send(held, pin, reads)?;
        if sent.lost.is_empty() {
            return Ok(sent);
        }
        Err(self.refusal(held, sent.version, pin, sent.lost))
    }

    /// The same for one who asked for it: what it does not read is left out. What it would read, and only the pin does not
    /// know, is a refusal.
    pub fn answer(&self, held: &Held<T>, pin: &Pin, reads: Option<Version>) -> Result<Sent, Unsaved> {
        let sent = self.send(held, pin, reads)?;
        if sent.lost.is_empty() || reads == Some(sent.version) {
            return Ok(sent);
        }
        Err(self.refusal(held, sent.version, pin, sent.lost))
    }

    fn sent(&self, held: &Held<T>, version: Version) -> Result<Sent, Unwritten> {
        if held.origin.is_none() && held.kept.is_none() {
            let Converted { version, data, lost } = self.enveloped(&held.value, version)?;
            return Ok(Sent {
                text: data,
                version,
                lost,
            });
        }
        let Converted { version, data, lost } = self.in_text(held, version)?;
        Ok(Sent {
            text: envelope::wrap(T::NAME, version, &data),
            version,
            lost,
        })
    }

    /// JSON in that version, with what came in older ones and was not changed here.
    fn in_text(&self, held: &Held<T>, version: Version) -> Result<Converted<String>, Unwritten> {
        if held.origin.is_none() && held.kept.is_none() {
            return self.text(&held.value, version);
        }
        let Converted { version, data, lost } = self.in_fields(held, version)?;
        Ok(Converted {
            version,
            data: Value::Object(data).to_string(),
            lost,
        })
    }

    /// The same as fields.
    fn in_fields(
        &self,
        held: &Held<T>,
        version: Version,
    ) -> Result<Converted<Map<String, Value>>, Unwritten> {
        let mut converted = self.fields(&held.value, version)?;
        let lost = match (&held.kept, held.came) {
            // All that came with it is among what was kept.
            (Some(kept), Some(came)) if version == came => {
                let failed = |error: Unreadable| not_representable::<T>(version, error);
                let unchanged = self.read(came, Source::Fields(&kept.fields)).map_err(failed)?;
                let seen = self.fields(&unchanged, came)?.data;
                put_back(&mut converted.data, &seen, &kept.fields)
            }
            (Some(kept), _) => {
                let mut lost = self.restore_unknown(held, version, &mut converted.data)?;
                lost.extend(carry_over(&mut converted.data, &kept.unknown, &kept.fields));
                lost
            }
            (None, _) => self.restore_unknown(held, version, &mut converted.data)?,
        };
        converted.lost.extend(lost);
        Ok(converted)
    }

    /// Reads what another process sent.
    pub fn receive(&self, text: &str) -> Result<Held<T>, Unreceived> {
        let opened = match envelope::open::<T>(text) {
            Ok(opened) => opened,
            Err(error) => return Err(Self::envelope_error(text, &error)),
        };
        if let Some(kind) = opened.other_kind {
            return Err(Unreceived::OtherKind {
                expected: T::NAME.to_owned(),
                kind,
            });
        }
        let version = opened.version;
        match opened.data {
            // Where unknown fields are dropped nothing of the text is needed any more.
            envelope::Data::Newest(value) if T::UNKNOWN_FIELDS == UnknownFields::Dropped => Ok(Held {
                value,
                came: Some(version),
                origin: None,
                kept: None,
            }),
            envelope::Data::Newest(value) => {
                let no_envelope = |error: serde_json::Error| Self::envelope_error(text, &error);
                let data = envelope::data(text).map_err(no_envelope)?;
                Ok(self.held(value, version, data.get())?)
            }
            envelope::Data::Raw(_) if version > T::VERSION => Err(Unreceived::Newer {
                object: T::NAME.to_owned(),
                version,
                ask_for: T::VERSION,
            }),
            envelope::Data::Raw(raw) => {
                let value = self.read(version, Source::Text(raw.get()))?;
                Ok(self.held(value, version, raw.get())?)
            }
        }
    }

    /// Data of the newest version is read with its envelope: which of the two was wrong?
    fn envelope_error(text: &str, error: &serde_json::Error) -> Unreceived {
        match envelope::label(text) {
            Ok((kind, version)) if kind == T::NAME && error.is_data() => {
                Unreceived::Unreadable(Unreadable::Malformed {
                    object: kind,
                    version,
                    why: error.to_string(),
                })
            }
            Ok(_) | Err(_) => Unreceived::NoEnvelope {
                why: error.to_string(),
            },
        }
    }

    /// What was sent, in an older version: for one who could not read it.
    pub fn backport(&self, text: &str, to: Version) -> Result<Sent, NotBackported> {
        let held = self.receive(text)?;
        Ok(self.sent(&held, to)?)
    }

    /// Puts back what came with it and was not changed here, as that version has it: the newest has no place for all of it.
    /// What cannot be put back is lost.
    fn restore_unknown(
        &self,
        held: &Held<T>,
        version: Version,
        data: &mut Map<String, Value>,
    ) -> Result<Vec<Loss>, Unwritten> {
        let (Some(origin), Some(came)) = (&held.origin, held.came) else {
            return Ok(Vec::new());
        };
        // The newest never has it, and that is what its release says.
        if version == T::VERSION {
            return Ok(Vec::new());
        }
        let failed = |error: Unreadable| not_representable::<T>(version, error);
        let at = version.max(came);
        let whole = self.raise(origin, came, at).map_err(failed)?;
        let unchanged = self.read(came, Source::Fields(origin)).map_err(failed)?;
        let seen = self.fields(&unchanged, at)?.data;
        Ok(if at == version {
            put_back(data, &seen, &whole)
        } else {
            // Nobody can bring it down to a version before the one in which it came.
            differences(&Value::Object(whole), &Value::Object(seen))
        })
    }
}

/// Some fields of an object of any version, also of one that is not known here. They are as they were sent: use it for
/// nothing but a key, which no version changes.
pub fn fields_of_any_version(
    text: &str,
    kind: &str,
    fields: &[&str],
) -> Result<Map<String, Value>, Unreceived> {
    #[derive(serde::Deserialize)]
    struct Any {
        kind: String,
        data: Map<String, Value>,
    }
    let Any {
        kind: found,
        mut data,
    } = serde_json::from_str(text).map_err(|error| Unreceived::NoEnvelope {
        why: error.to_string(),
    })?;
    if found != kind {
        return Err(Unreceived::OtherKind {
            expected: kind.to_owned(),
            kind: found,
        });
    }
    let mut chosen = Map::new();
    for field in fields {
        let value = data.remove(*field).ok_or_else(|| Unreceived::NoEnvelope {
            why: format!("{kind} has no field {field:?}"),
        })?;
        chosen.insert((*field).to_owned(), value);
    }
    Ok(chosen)
}

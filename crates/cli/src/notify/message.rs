//! The messages about a run.

use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_core::model::Code;
use stagger_core::run::{Ending, Entry, Event, Run};
use stagger_report::event_text::EventLine;

/// Whether somebody is woken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Importance {
    /// Somebody has to act, or something went wrong.
    Urgent,
    /// It can wait for the digest.
    Digest,
}

/// A message, or what will be a line of a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Whether somebody is woken for it.
    pub(crate) importance: Importance,
    /// The same each time that it is sent: the run and the place of the event.
    pub(crate) id: String,
    /// The place of the event.
    pub(crate) seq: u64,
    /// When it happened.
    pub(crate) at: Timestamp,
    /// `dev.stagger.run.held`.
    pub(crate) kind: String,
    /// Of which cluster.
    pub(crate) cluster: String,
    /// Of which run.
    pub(crate) run: String,
    /// In a few words.
    pub(crate) subject: String,
    /// What happened, what to do next.
    pub(crate) text: String,
}

impl Message {
    /// What an event is worth; `None`: nothing.
    pub(crate) fn of(entry: &Entry, line: &EventLine, run: &Run) -> Option<Self> {
        let (importance, kind, next) = classify(&entry.event, run)?;
        let start = run.start();
        let (cluster, id) = (start.cluster.to_string(), start.run.to_string());
        let text = format!("{}: {} {}{}", start.target.title, line.word, line.text, next);
        Some(Self {
            importance,
            id: format!("{id}/{}", entry.seq),
            seq: entry.seq,
            at: entry.at,
            kind: format!("dev.stagger.run.{kind}"),
            subject: format!("{cluster}: {}", subject(kind)),
            cluster,
            run: id,
            text,
        })
    }

    /// One that says that messages arrive.
    pub(crate) fn test(cluster: &str) -> Self {
        let at = Timestamp::now();
        Self {
            importance: Importance::Urgent,
            id: format!("test/{}", at.as_millisecond()),
            seq: 0,
            at,
            kind: "dev.stagger.test".to_owned(),
            cluster: cluster.to_owned(),
            run: "test".to_owned(),
            subject: format!("{cluster}: a test"),
            text: "a test of notifications: nothing has happened".to_owned(),
        }
    }

    /// Several as one; `None`: there are none.
    pub(crate) fn digest(messages: &[Self]) -> Option<Self> {
        let last = messages.last()?;
        let lines: Vec<String> = messages
            .iter()
            .map(|message| format!("{} {}", message.at.strftime("%H:%M:%S"), message.text))
            .collect();
        Some(Self {
            kind: "dev.stagger.run.digest".to_owned(),
            subject: format!("{}: {} events", last.cluster, messages.len()),
            text: lines.join("\n"),
            ..last.clone()
        })
    }

    /// As a `CloudEvent` 1.0 in its structured form.
    pub(crate) fn cloud_event(&self) -> Value {
        json!({
            "specversion": "1.0",
            "id": self.id,
            "source": format!("/stagger/{}", self.cluster),
            "type": self.kind,
            "subject": self.run,
            "time": self.at.to_string(),
            "datacontenttype": "application/json",
            "data": {
                "cluster": self.cluster,
                "run": self.run,
                "event": self.seq,
                "subject": self.subject,
                "text": self.text,
            },
        })
    }

    /// In plain text.
    pub(crate) fn plain(&self) -> String {
        format!("{}\n{}\n", self.subject, self.text)
    }
}

/// Whether somebody is woken, which sort it is, and what can be done.
fn classify(event: &Event, run: &Run) -> Option<(Importance, &'static str, String)> {
    use Importance::{Digest, Urgent};
    let id = &run.start().run;
    Some(match event {
        // It continues by itself.
        Event::Held { reason } if [Code::GatesShut, Code::WaveLeftAlone].contains(&reason.code) => {
            (Digest, "waiting", String::new())
        }
        // A person has asked for that.
        Event::Held { reason } if reason.code == Code::Paused => (Digest, "paused", String::new()),
        Event::Held { .. } => (
            Urgent,
            "held",
            format!("\nwhen that is settled: stagger resume {id}; to end it: stagger abort {id}"),
        ),
        Event::WaveFailed { .. } => (Urgent, "wave-failed", format!("\nmore: stagger watch {id}")),
        Event::Ended {
            outcome: Ending::Done,
        } => (Digest, "done", String::new()),
        Event::Ended { .. } => (
            Urgent,
            "ended",
            format!("\nmore: stagger report {id} --out run.html"),
        ),
        Event::Started(_) => (Digest, "started", String::new()),
        Event::WavePassed => (Digest, "wave-passed", String::new()),
        Event::WaveRecovered => (Digest, "wave-recovered", String::new()),
        Event::WaveWentBack => (Digest, "wave-rolled-back", String::new()),
        Event::StepPassed { .. } => (Digest, "step-passed", String::new()),
        Event::SetAside { .. } => (Digest, "unit-set-aside", String::new()),
        Event::Asked { .. } => (Digest, "asked", String::new()),
        Event::Released => (Digest, "released", String::new()),
        Event::LeaseTaken { .. }
        | Event::JournalBehind
        | Event::Planned { .. }
        | Event::WaveOpened { .. }
        | Event::WaveJoined { .. }
        | Event::Judged { .. }
        | Event::WaveDropped { .. }
        | Event::Intent { .. }
        | Event::Settled { .. }
        | Event::GatesTurned { .. } => return None,
    })
}

fn subject(kind: &str) -> String {
    match kind {
        "held" => "a run needs you".to_owned(),
        "wave-failed" => "a wave failed".to_owned(),
        "ended" => "a run ended before its target".to_owned(),
        other => format!("run {}", other.replace('-', " ")),
    }
}

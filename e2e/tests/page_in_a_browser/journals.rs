//! Journals as they were written by real runs, moved to now; and one of ten thousand units, made from those.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use stagger_core::run::{Entry, Event};

/// Sixty OSDs are upgraded.
pub(crate) const DEMO: &str = include_str!("../../../crates/report/tests/journals/demo.jsonl");
/// It waits for a person.
pub(crate) const HELD: &str = include_str!("../../../crates/report/tests/journals/held.jsonl");
/// It is over, on the release before.
pub(crate) const ROLLED_BACK: &str = include_str!("../../../crates/report/tests/journals/rolled-back.jsonl");

/// The lines of a journal, as they are in its file.
pub(crate) fn lines(journal: &str) -> Result<Vec<Value>> {
    let line = |line: &str| serde_json::from_str(line).context("reading a line of a journal");
    journal.lines().map(line).collect()
}

/// The events of a journal, moved in time so that the `newest`-th of them was written a moment ago.
pub(crate) fn entries(lines: &[Value], newest: usize) -> Result<Vec<Entry>> {
    let at = lines[newest - 1]["at"]
        .as_str()
        .context("an event without a time")?;
    let at: Timestamp = at.parse().context("reading a time")?;
    let by = Timestamp::now().duration_since(at) - SignedDuration::from_secs(5);
    let entry = |line: &Value| {
        let mut line = line.clone();
        shift(&mut line, by);
        let mut fields: Map<String, Value> = serde_json::from_value(line)?;
        let mut taken = |name: &str| {
            fields
                .remove(name)
                .with_context(|| format!("an event without {name}"))
        };
        let (seq, at) = (
            serde_json::from_value(taken("seq")?)?,
            serde_json::from_value(taken("at")?)?,
        );
        let event: Event = serde_json::from_value(fields.into())?;
        Ok(Entry { seq, at, event })
    };
    lines.iter().map(entry).collect()
}

/// Moves every time in there.
fn shift(value: &mut Value, by: SignedDuration) {
    match value {
        Value::String(text) => {
            if let Ok(at) = text.parse::<Timestamp>() {
                *text = (at + by).to_string();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| shift(value, by)),
        Value::Object(fields) => fields.values_mut().for_each(|value| shift(value, by)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The sizes of the waves: each twice the one before, up to what a policy permits of ten thousand.
const WAVES: [usize; 16] = [
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 1_500, 1_500, 1_500, 1_500, 1_953,
];
/// Waves that have passed.
const PASSED: usize = 11;
const HOSTS: usize = 500;
const ON_A_HOST: usize = 20;
const HOSTS_IN_A_RACK: usize = 20;
/// So many units of the open wave are down.
const DOWN: usize = 700;

fn units_of(wave: usize) -> std::ops::Range<usize> {
    let from = WAVES[..wave].iter().sum();
    from..from + WAVES[wave]
}

/// A run over ten thousand OSDs in the midst of its twelfth wave, its events in their order. From the last one on each
/// event of `more` changes one unit.
pub(crate) struct Large {
    pub(crate) lines: Vec<Value>,
    pub(crate) more: Vec<Value>,
}

impl Large {
    pub(crate) fn make() -> Result<Self> {
        let units: usize = WAVES.iter().sum();
        ensure!(units == HOSTS * ON_A_HOST, "{units} units");
        let demo = lines(DEMO)?;
        let mut start = demo[0].clone();
        for (name, value) in [
            ("cluster", "large"),
            ("run", "sim-large"),
            ("identity", "large-1"),
        ] {
            start[name] = value.into();
        }
        let parts = start["target"]["parts"]
            .as_array_mut()
            .context("a target without parts")?;
        parts.retain(|part| part["stage"]["name"] == "osd");
        for guards in parts.iter_mut().map(|part| &mut part["stage"]["guards"]) {
            *guards = json!([]);
        }
        let host = |host: usize| {
            let osds: Vec<String> = (0..ON_A_HOST)
                .map(|osd| format!("osd.{}", host * ON_A_HOST + osd))
                .collect();
            json!({ "name": format!("node{host:03}"), "within": format!("rack{:02}", host / HOSTS_IN_A_RACK), "units": osds })
        };
        start["topology"] = json!({ "above": "rack", "hosts": (0..HOSTS).map(host).collect::<Vec<_>>() });
        let mut made = Writer {
            lines: Vec::new(),
            second: 0,
        };
        made.push(start);
        made.push(demo[1].clone());
        let template = demo[2].clone();
        for (wave, &size) in WAVES.iter().enumerate().take(PASSED) {
            made.plan(&template, wave)?;
            made.open(wave);
            for unit in units_of(wave) {
                made.enter(unit);
            }
            made.second += 20;
            for unit in units_of(wave) {
                let intent = made.change(unit);
                made.settle(intent, "started");
            }
            made.second += 30;
            made.push(json!({ "event": "gates-turned", "shut": [["pgs-clean", format!("no: {} of 65536 are not", 8 * size)]] }));
            made.second += 60;
            made.push(json!({ "event": "gates-turned", "shut": [] }));
            made.push(json!({ "event": "wave-passed" }));
        }
        made.plan(&template, PASSED)?;
        made.open(PASSED);
        for unit in units_of(PASSED).take(DOWN) {
            made.enter(unit);
        }
        let kept = made.lines.len();
        for unit in units_of(PASSED).take(DOWN) {
            made.second += 1;
            let intent = made.change(unit);
            made.settle(intent, "started");
        }
        let more = made.lines.split_off(kept);
        Ok(Self {
            lines: made.lines,
            more,
        })
    }
}

/// The name of the unit whose turn is at that place: neighbours are not of one wave, as in a real plan.
fn name(osd: usize) -> String {
    format!("osd.{}", osd * 7_919 % (HOSTS * ON_A_HOST))
}

struct Writer {
    lines: Vec<Value>,
    second: i64,
}

impl Writer {
    /// Writes an event; its place.
    fn push(&mut self, mut event: Value) -> usize {
        let seq = self.lines.len() + 1;
        event["seq"] = seq.into();
        event["at"] = self.now().into();
        self.lines.push(event);
        seq
    }

    fn now(&self) -> String {
        (Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.second)).to_string()
    }

    fn plan(&mut self, template: &Value, from: usize) -> Result<()> {
        let mut event = template.clone();
        let parts = event["plan"]["parts"]
            .as_array_mut()
            .context("a plan without parts")?;
        parts.retain(|part| part["stage"]["name"] == "osd");
        let stage = &mut parts.first_mut().context("no stage of OSDs")?["stage"];
        let wave = |wave: usize| json!({ "units": sorted(wave), "seconds": 160 });
        stage["waves"] = (from..WAVES.len()).map(wave).collect();
        stage["all"] = (HOSTS * ON_A_HOST).into();
        stage["parallel"] = 1_500.into();
        event["plan"]["id"] = format!("{from:016x}").into();
        event["plan"]["cluster"] = "large".into();
        self.push(event);
        Ok(())
    }

    fn open(&mut self, wave: usize) {
        let units: Vec<String> = sorted(wave);
        let opened: Vec<_> = units.iter().map(|unit| json!([unit, "18.2.7"])).collect();
        self.push(json!({ "event": "wave-opened", "stage": "osd", "units": opened }));
        let yes = json!({ "answer": "yes" });
        let facts = self.now();
        self.push(json!({ "event": "judged", "units": units, "ours": yes, "theirs": yes, "facts": facts }));
    }

    fn visit(&mut self, unit: usize, phase: &str) -> usize {
        let action = json!({ "action": "visit", "unit": name(unit), "phase": phase, "revision": "20.2.1" });
        let mut event = json!({ "event": "intent", "action": action });
        if phase == "enter" {
            let before = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(self.second + 20);
            event["before"] = before.to_string().into();
        }
        self.push(event)
    }

    fn settle(&mut self, intent: usize, note: &str) {
        self.push(
            json!({ "event": "settled", "intent": intent, "outcome": { "outcome": "done", "note": note } }),
        );
    }

    fn enter(&mut self, unit: usize) {
        let intent = self.visit(unit, "enter");
        self.settle(intent, "stopped");
    }

    /// Changes a unit, and begins to give it back; the place of that.
    fn change(&mut self, unit: usize) -> usize {
        let intent = self.visit(unit, "change");
        self.settle(intent, "20.2.1 installed");
        self.visit(unit, "leave")
    }
}

/// The units of a wave, as people count.
fn sorted(wave: usize) -> Vec<String> {
    let mut numbers: Vec<usize> = units_of(wave)
        .map(|osd| osd * 7_919 % (HOSTS * ON_A_HOST))
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(|number| format!("osd.{number}"))
        .collect()
}

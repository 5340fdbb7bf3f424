//! A run's journal as `history --json` prints it, and what a test asks of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A journal.
#[derive(Debug, Clone)]
pub struct Journal {
    /// Of which run.
    pub run: String,
    /// Its events.
    pub events: Vec<Value>,
}

/// A wave that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wave {
    /// Of which stage.
    pub stage: String,
    /// Its units.
    pub units: Vec<String>,
    /// How it ended: `wave-passed`, `wave-went-back`, `wave-dropped`; none: it is open.
    pub ended: Option<String>,
    /// What both judges answered about the whole of it last: `yes`, `no`, `unknown`.
    pub judged: Option<(String, String)>,
}

impl Journal {
    pub(super) fn read(run: &str, lines: &str) -> Result<Self> {
        let events = lines
            .lines()
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("a line of the journal: {line:.200}"))
            })
            .collect::<Result<Vec<Value>>>()?;
        Ok(Self {
            run: run.to_owned(),
            events,
        })
    }

    /// The events of a kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["event"] == kind)
    }

    /// The effects that were announced and whose end is not written.
    pub fn open(&self) -> Vec<&Value> {
        let settled: BTreeSet<u64> = self
            .of("settled")
            .filter_map(|event| event["intent"].as_u64())
            .collect();
        self.of("intent")
            .filter(|event| event["seq"].as_u64().is_none_or(|seq| !settled.contains(&seq)))
            .map(|event| &event["action"])
            .collect()
    }

    /// Whether a daemon of that kind is being worked on: its visit is announced and not settled. Software that is laid out
    /// for it is none.
    pub fn visits(&self, kind: &str) -> bool {
        self.open().iter().any(|action| {
            let unit = action["unit"].as_str().unwrap_or_default();
            let works = action["action"] == "visit" && action["phase"] != "prepare";
            works && unit.split('.').next() == Some(kind)
        })
    }

    /// The units whose visit is in that phase now, `enter`, `change` or `leave`; each with what the key
    /// begins with by which its effect is known in the world; the token under which it was announced ends it.
    pub fn in_phase(&self, phase: &str) -> Vec<(String, String)> {
        let open = self.open();
        self.of("intent")
            .filter(|event| open.contains(&&event["action"]))
            .filter(|event| event["action"]["action"] == "visit" && event["action"]["phase"] == phase)
            .filter_map(|event| {
                let unit = event["action"]["unit"].as_str()?.to_owned();
                Some((unit, format!("{}-{}-", self.run, event["seq"].as_u64()?)))
            })
            .collect()
    }

    /// Whether that step is being taken: it is announced and not settled.
    pub fn in_step(&self, step: &str) -> bool {
        let open = self.open();
        open.iter()
            .any(|action| action["action"] == "step" && action["step"] == step)
    }

    /// The stage of the wave that was opened last.
    pub fn stage(&self) -> Option<&str> {
        self.of("wave-opened").last()?["stage"].as_str()
    }

    /// Whether a wave is open whose units were all visited, with nothing left to settle.
    pub fn waits_for_gates(&self) -> bool {
        let opened = |event: &Value| event["event"] == "wave-opened";
        let Some(at) = self.events.iter().rposition(opened) else {
            return false;
        };
        let visits = |event: &&Value| {
            let action = &event["action"];
            event["event"] == "intent" && action["action"] == "visit" && action["phase"] != "prepare"
        };
        let visited = self.events[at..].iter().filter(visits).count();
        self.waves()
            .last()
            .is_some_and(|wave| wave.ended.is_none() && visited == wave.units.len())
            && self.open().is_empty()
    }

    /// The waves, in the order in which they were opened.
    pub fn waves(&self) -> Vec<Wave> {
        let mut waves: Vec<Wave> = Vec::new();
        for event in &self.events {
            let kind = event["event"].as_str().unwrap_or_default();
            match kind {
                "wave-opened" => waves.push(Wave {
                    stage: event["stage"].as_str().unwrap_or_default().to_owned(),
                    units: event["units"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|unit| unit[0].as_str())
                        .map(str::to_owned)
                        .collect(),
                    ended: None,
                    judged: None,
                }),
                "wave-passed" | "wave-went-back" | "wave-dropped" => {
                    if let Some(wave) = waves.last_mut() {
                        wave.ended = Some(kind.to_owned());
                    }
                }
                "judged" => {
                    let asked = strings(&event["units"]);
                    let asked: BTreeSet<_> = asked.iter().collect();
                    let whole = |wave: &&mut Wave| wave.units.iter().collect::<BTreeSet<_>>() == asked;
                    if let Some(wave) = waves.last_mut().filter(whole) {
                        let answer = |who: &str| event[who]["answer"].as_str().unwrap_or_default().to_owned();
                        wave.judged = Some((answer("ours"), answer("theirs")));
                    }
                }
                _ => {}
            }
        }
        waves
    }

    /// The waves of a stage that passed.
    pub fn passed(&self, stage: &str) -> Vec<Wave> {
        let passed = |wave: &Wave| wave.ended.as_deref() == Some("wave-passed");
        let mut waves = self.waves();
        waves.retain(|wave| wave.stage == stage && passed(wave));
        waves
    }

    /// The reasons for which the run was held.
    pub fn held(&self) -> Vec<String> {
        self.of("held")
            .filter_map(|event| event["reason"]["slug"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// The effects of a kind with their units: `go-back`, `restart` …
    pub fn actions(&self, kind: &str) -> Vec<(String, &Value)> {
        self.of("intent")
            .map(|event| &event["action"])
            .filter(|action| action["action"] == kind)
            .map(|action| (action["unit"].as_str().unwrap_or_default().to_owned(), action))
            .collect()
    }

    /// Fails unless each wave that was carried out had the consent of both judges.
    pub fn both_judges_agreed(&self) -> Result<()> {
        for wave in self.waves() {
            if wave.ended.as_deref() == Some("wave-dropped") {
                continue;
            }
            let yes = |answer: &str| answer == "yes" || answer == "no-oracle";
            ensure!(
                wave.judged
                    .as_ref()
                    .is_some_and(|(ours, theirs)| ours == "yes" && yes(theirs)),
                "the judges on {wave:?}"
            );
        }
        for (at, event) in self.events.iter().enumerate() {
            if event["event"] != "wave-joined" {
                continue;
            }
            let agreed = self.events[at..]
                .iter()
                .filter(|event| event["event"] == "judged");
            let agreed = agreed.filter(|event| {
                let yes = |who: &str| event[who]["answer"] == "yes" || event[who]["answer"] == "no-oracle";
                yes("ours") && yes("theirs")
            });
            let asked: BTreeSet<String> = agreed.flat_map(|event| strings(&event["units"])).collect();
            let joined = Self::joined(event);
            ensure!(
                joined.iter().all(|unit| asked.contains(unit)),
                "the judges on {joined:?}, which joined"
            );
        }
        Ok(())
    }

    /// When that phase of a unit's visit was over, in seconds of the day.
    pub fn settled(&self, phase: &str, unit: &str) -> Option<f64> {
        let is_it = |event: &&Value| {
            let action = &event["action"];
            action["action"] == "visit" && action["phase"] == phase && action["unit"] == unit
        };
        let intent = self.of("intent").find(is_it)?["seq"].as_u64()?;
        let settled = self.of("settled").find(|event| event["intent"] == intent)?;
        Some(seconds(&settled["at"]))
    }

    /// The units that joined a wave by that event.
    pub fn joined(event: &Value) -> Vec<String> {
        let units = event["units"].as_array().into_iter().flatten();
        units
            .filter_map(|unit| unit[0].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// How long each stage took, from its first wave to the end of its last, in seconds.
    pub fn stage_seconds(&self) -> Vec<(String, f64)> {
        let mut spans: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut order = Vec::new();
        let mut current = String::new();
        for event in &self.events {
            let at = seconds(&event["at"]);
            match event["event"].as_str() {
                Some("wave-opened") => {
                    event["stage"]
                        .as_str()
                        .unwrap_or_default()
                        .clone_into(&mut current);
                    if !order.contains(&current) {
                        order.push(current.clone());
                    }
                    spans.entry(current.clone()).or_insert((at, at));
                }
                Some("wave-passed") => {
                    if let Some(span) = spans.get_mut(&current) {
                        span.1 = at;
                    }
                }
                _ => {}
            }
        }
        order
            .into_iter()
            .filter_map(|stage| {
                let (from, to) = spans.get(&stage)?;
                let took = to - from;
                Some((stage, took))
            })
            .collect()
    }
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The seconds of the day in a time like `2026-01-31T12:00:00.5Z`; a test does not run over midnight
/// often enough to care.
fn seconds(at: &Value) -> f64 {
    let text = at.as_str().unwrap_or_default();
    let time = text.split_once('T').map_or("", |(_, time)| time);
    let mut total = 0.0;
    for part in time.trim_end_matches('Z').split(':') {
        total = total * 60.0 + part.parse::<f64>().unwrap_or(0.0);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_and_open_effects_are_read_from_the_lines() {
        let lines = r#"{"seq":1,"at":"2026-01-31T12:00:00Z","event":"wave-opened","stage":"osd","units":[["osd.1","16.2.15"]]}
{"seq":2,"at":"2026-01-31T12:00:01Z","event":"judged","units":["osd.1"],"ours":{"answer":"yes"},"theirs":{"answer":"yes"}}
{"seq":3,"at":"2026-01-31T12:00:01Z","event":"intent","action":{"action":"visit","unit":"osd.1"}}
{"seq":4,"at":"2026-01-31T12:01:01.5Z","event":"intent","action":{"action":"restart","unit":"osd.1"}}
{"seq":5,"at":"2026-01-31T12:01:01.5Z","event":"settled","intent":3}
{"seq":6,"at":"2026-01-31T12:01:01.5Z","event":"wave-passed"}"#;
        let journal = Journal::read("r", lines).unwrap();
        assert_eq!(journal.passed("osd").len(), 1);
        assert_eq!(journal.open(), [&journal.events[3]["action"]]);
        journal.both_judges_agreed().unwrap();
        assert_eq!(journal.stage_seconds(), [("osd".to_owned(), 61.5)]);
    }

    #[test]
    fn a_visit_is_known_by_its_phase_until_it_is_settled() {
        let lines = r#"{"seq":7,"event":"intent","action":{"action":"visit","unit":"node2","phase":"enter"}}
{"seq":8,"event":"intent","action":{"action":"visit","unit":"node3","phase":"change"}}
{"seq":9,"event":"settled","intent":7}"#;
        let journal = Journal::read("r", lines).unwrap();
        assert!(journal.in_phase("enter").is_empty());
        assert_eq!(
            journal.in_phase("change"),
            [("node3".to_owned(), "r-8-".to_owned())]
        );
    }
}

//! Steps in words: scenario files are made of them.

use stagger_core::run::Decision;

use super::book::{Book, is_modelled, name, what};
use super::system::{Conductor, Step, System};
use super::world::What;

impl System {
    /// A step in words. What stands in brackets tells more and names nothing.
    pub(crate) fn tell(&self, book: &mut Book, step: Step) -> String {
        let call = |at: usize| {
            let call = &self.world.flight[at];
            let late = if call.forgotten { "late " } else { "" };
            format!("{late}{} of token {}", call.what, call.token)
        };
        match step {
            Step::TakeLock => format!("a process takes the lock: token {}", self.lock.token + 1),
            Step::Lapse(token) => format!("the lock of token {token} lapses"),
            Step::Adopt(token) => format!("token {token} takes over the journal"),
            Step::BeginElsewhere(token) => {
                format!("token {token} begins a run on another machine, in a journal of its own")
            }
            Step::RuleOut(token) => format!("token {token} rules out stray calls"),
            Step::RuleOutBut(token, unit) => {
                format!(
                    "token {token} rules out stray calls, and does not reach {}",
                    name(unit)
                )
            }
            Step::Go(token) => format!("token {token} goes on ({})", self.tell_decision(book, token)),
            Step::Send(token, seq) => format!("token {token} sends {}", self.tell_intent(book, token, seq)),
            Step::Read(token, seq) => {
                format!(
                    "token {token} reads that it is so: {}",
                    self.tell_intent(book, token, seq)
                )
            }
            Step::NotReached(token, seq) => {
                format!(
                    "token {token} cannot reach the unit for {}",
                    self.tell_intent(book, token, seq)
                )
            }
            Step::Hear(token, seq) => {
                format!("token {token} hears of {}", self.tell_intent(book, token, seq))
            }
            Step::Stop(token) => format!("token {token} stops"),
            Step::Land(at) => format!("{} lands", call(at)),
            Step::End(at) => format!("{} ends", call(at)),
            Step::LoseCall(at) => format!("{} is lost", call(at)),
            Step::LoseAnswer(at) => format!("{} goes unanswered", call(at)),
            Step::Age => "what the judges have said is too old by now".to_owned(),
            Step::Fall(unit) => format!("{} goes down by itself", name(unit)),
            Step::Rise(unit) => format!("{} comes back", name(unit)),
        }
    }

    fn tell_intent(&self, book: &Book, token: u8, seq: u8) -> What {
        match &self.conductors[self.index(token)] {
            Conductor::Driving { run, .. } => what(book.fold(*run).run.intent(u64::from(seq)).unwrap()),
            other => panic!("{other:?} makes no calls"),
        }
    }

    fn tell_decision(&self, book: &mut Book, token: u8) -> String {
        let Conductor::Driving { run, seen, .. } = &self.conductors[self.index(token)] else {
            return String::new();
        };
        match book.decide(*run, self.world.tick, *seen) {
            Decision::Observe => "observes".to_owned(),
            Decision::Judge(_) => "asks both judges".to_owned(),
            Decision::Record(events) => {
                let names = events.iter().map(|event| {
                    serde_json::to_value(event).unwrap()["event"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                });
                format!("writes {}", names.collect::<Vec<_>>().join(", "))
            }
            Decision::Act { fresh, .. } if fresh.is_empty() => "starts what is open".to_owned(),
            Decision::Act { fresh, .. } => {
                let fresh: Vec<_> = fresh
                    .iter()
                    .filter(|effect| is_modelled(&effect.action))
                    .map(|effect| what(&effect.action).to_string())
                    .collect();
                format!("announces {}", fresh.join(", "))
            }
            Decision::Wait { why, .. } | Decision::Hold(why) => format!("waits: {}", why.code),
            Decision::Over(_) => "is done".to_owned(),
        }
    }
}

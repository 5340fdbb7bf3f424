//! What a process does that carries out the run: the shape of `supervisor::resume` and of the driver's
//! steps, with the driver's own rules from [`stagger_engine::protocol`].

use std::collections::BTreeSet;
use std::time::Duration;

use stagger_core::model::UnitId;
use stagger_core::run::{Action, Answer as Judgement, Decision, Event};
use stagger_engine::cluster::{BackendError, Fencing};
use stagger_engine::protocol::{self, Earlier};

use super::book::{Book, FoldIx, Sight, is_modelled, name, place, what};
use super::laws::Law;
use super::rails::{Safeguard, Setup, Visits};
use super::system::{Conductor, Stands, System};
use super::world::{Answer, What};

type Calls = Vec<(u8, Stands)>;

enum Appended {
    At(FoldIx),
    Refused,
    Broken(Law),
}

/// The rail of an action, as a backend would say it: also of those that the model does not have, which are
/// like visits or like guards.
fn rail(setup: &Setup, action: &Action) -> Fencing {
    let like = match action {
        Action::TakeGuard { .. }
        | Action::DropGuard { .. }
        | Action::Step { .. }
        | Action::Collect { .. } => Visits::Bounded,
        Action::Visit { .. } | Action::Restart { .. } | Action::GoBack { .. } => setup.visits,
    };
    match like {
        Visits::Fenced => Fencing::Fenced,
        Visits::Conditional => Fencing::Conditional,
        Visits::Bounded => Fencing::Bounded(Duration::from_secs(1)),
    }
}

impl System {
    /// The journal's rule: only the newest token, and only at the place where it stands.
    fn append(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        run: FoldIx,
        events: &[Event],
    ) -> Appended {
        if setup.has(Safeguard::JournalToken) && token != self.token
            || setup.has(Safeguard::JournalPlace) && book.seq(run) != book.seq(self.journal)
        {
            return Appended::Refused;
        }
        let before = book.fold(self.journal).token;
        let (Some(journal), Some(run)) = (
            book.append(self.journal, token, self.world.tick, events),
            book.append(run, token, self.world.tick, events),
        ) else {
            return if setup.watches(Law::JournalMakesSense) {
                Appended::Broken(Law::JournalMakesSense)
            } else {
                Appended::Refused
            };
        };
        if token < before && setup.watches(Law::TokensOnlyGrow) {
            return Appended::Broken(Law::TokensOnlyGrow);
        }
        self.journal = journal;
        Appended::At(run)
    }

    /// As `supervisor::resume`: the journal is told first, then read, then written.
    pub(super) fn adopt(&mut self, setup: &Setup, book: &mut Book, token: u8) -> Result<(), Law> {
        if self.token >= token || book.fold(self.journal).run.ended().is_some() {
            self.give_back(token);
            return Ok(());
        }
        self.token = token;
        let taken = Event::LeaseTaken {
            fence: u64::from(token),
            holder: format!("p{token}"),
        };
        let at = self.index(token);
        match self.append(setup, book, token, self.journal, &[taken]) {
            Appended::At(run) => self.conductors[at] = Conductor::Adopted { token, run },
            Appended::Refused => self.give_back(token),
            Appended::Broken(law) => return Err(law),
        }
        Ok(())
    }

    /// As `supervisor::start` on another machine: it begins a run in a journal of its own, and all that
    /// it learns of the holder before is how much its token has grown.
    pub(super) fn begin_elsewhere(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
    ) -> Option<Result<(), Law>> {
        let knows_better = self.apart > 0 || self.token == 0 || self.token >= token;
        if !setup.stranger || knows_better {
            return None;
        }
        self.apart = token - 1;
        self.journal = Book::ELSEWHERE;
        Some(self.adopt(setup, book, token))
    }

    pub(super) fn give_back(&mut self, token: u8) {
        if self.lock.token == token {
            self.lock.held = false;
        }
        self.stop(token);
    }

    /// As `Driver::resume`: its first acts, by the driver's own rule. `but`: a unit with an open intent that is not reached.
    pub(super) fn rule_out(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        but: Option<usize>,
    ) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Adopted { run, .. } = self.conductors[at] else {
            return None;
        };
        let open = book.fold(run).run.open().map(|(_, action)| action);
        let first = protocol::takeover(open, |action| rail(setup, action));
        let (mut units, mut wait): (Vec<usize>, _) = (first.raise.iter().map(place).collect(), first.wait);
        let of = &book.fold(run).run;
        let had_a_stranger =
            protocol::may_have_stray_calls(of.ruled_out(), of.takeover_tokens(), u64::from(token));
        if setup.has(Safeguard::Stranger) && had_a_stranger {
            // Nothing is known of what may be open there: it is waited for.
            if but.is_some() {
                return None;
            }
            let all: Vec<UnitId> = (0..self.world.units.len()).map(name).collect();
            let target = &book.fold(run).run.start().target;
            wait = wait.max(protocol::longest_bound(target, &all, |action| {
                rail(setup, action)
            }));
            units = (0..self.world.units.len()).collect();
        }
        let is_raised = |unit: &usize| units.contains(unit) && setup.has(Safeguard::RaiseFirst);
        if but.is_some_and(|but| !is_raised(&but)) {
            return None;
        }
        units.retain(|unit| Some(*unit) != but);
        if setup.has(Safeguard::RaiseFirst) && !self.world.raise_fence(setup, token, &units) {
            return None;
        }
        if setup.has(Safeguard::WaitOut) && !wait.is_zero() && self.world.has_older_bounded(setup, token) {
            return None;
        }
        // What is open on a unit that was not reached may still land.
        let is_stray = |action: &Action| is_modelled(action) && Some(what(action).unit()) == but;
        let strays = book.fold(run).run.open().filter(|(_, action)| is_stray(action));
        let stray = Stands::Ready {
            earlier: Earlier::Stray,
        };
        let calls = strays
            .map(|(seq, _)| (u8::try_from(seq).unwrap(), stray))
            .collect();
        self.conductors[at] = Conductor::Driving {
            token,
            run,
            seen: None,
            calls,
            unguarded: but,
        };
        Some(Ok(()))
    }

    /// As `guarded` in `Driver`: the fence is raised first where it is not yet. `false`: it waits there.
    fn guarded(&mut self, setup: &Setup, token: u8, unit: usize) -> bool {
        let at = self.index(token);
        let Conductor::Driving { unguarded, .. } = &mut self.conductors[at] else {
            return false;
        };
        if *unguarded == Some(unit) {
            *unguarded = None;
            return self.world.raise_fence(setup, token, &[unit]);
        }
        true
    }

    /// As `Driver::step`.
    pub(super) fn go(&mut self, setup: &Setup, book: &mut Book, token: u8) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Driving {
            run,
            seen,
            calls,
            unguarded,
            ..
        } = self.conductors[at].clone()
        else {
            return None;
        };
        // What was seen counts as long as an approval.
        let seen = seen.filter(|seen| seen.tick == self.world.tick);
        match book.decide(run, self.world.tick, seen) {
            Decision::Observe => {
                let seen = Some(self.look(book, run));
                self.conductors[at] = Conductor::Driving {
                    token,
                    run,
                    seen,
                    calls,
                    unguarded,
                };
            }
            Decision::Record(events) => return self.record(setup, book, token, &events, |_, calls| calls),
            Decision::Judge(sets) => {
                let judged: Vec<Event> = sets.into_iter().map(|set| self.judge(book, seen, set)).collect();
                return self.record(setup, book, token, &judged, |_, calls| calls);
            }
            // What fell comes back by itself: nothing is restarted.
            Decision::Act { fresh, .. } if !fresh.iter().all(|effect| is_modelled(&effect.action)) => {
                self.conductors[at] = Conductor::Driving {
                    token,
                    run,
                    seen: None,
                    calls,
                    unguarded,
                };
            }
            Decision::Act { fresh, again } => {
                let again = if setup.has(Safeguard::Adopt) {
                    again
                } else {
                    Vec::new()
                };
                let first = u64::from(book.seq(run)) + 1;
                let announced: Vec<u64> = (first..).take(fresh.len()).collect();
                let under_way: BTreeSet<u64> = calls.iter().map(|(seq, _)| u64::from(*seq)).collect();
                let start = protocol::to_start(again, announced.clone(), &under_way);
                let intents: Vec<Event> = fresh.into_iter().map(Event::from).collect();
                let with_started = |_: &mut Self, mut calls: Calls| {
                    let ready = |seq: u64| {
                        let earlier = if announced.contains(&seq) {
                            Earlier::None
                        } else {
                            Earlier::Adopted
                        };
                        (u8::try_from(seq).unwrap(), Stands::Ready { earlier })
                    };
                    calls.extend(start.into_iter().map(ready));
                    calls
                };
                return self.record(setup, book, token, &intents, with_started);
            }
            Decision::Wait { .. } => {
                self.conductors[at] = Conductor::Driving {
                    token,
                    run,
                    seen: None,
                    calls,
                    unguarded,
                };
            }
            // Nothing in the model fails for good: a run that is held is one that does not end.
            Decision::Hold(_) => return None,
            Decision::Over(_) => self.give_back(token),
        }
        Some(Ok(()))
    }

    fn look(&self, book: &Book, run: FoldIx) -> Sight {
        Sight {
            view: self.world.view(),
            as_of: book.seq(run),
            tick: self.world.tick,
        }
    }

    fn judge(&self, book: &mut Book, seen: Option<Sight>, units: Vec<UnitId>) -> Event {
        let ours = match seen {
            None => Judgement::Unknown { why: String::new() },
            Some(sight) => {
                let snapshot = book.snapshot(sight);
                let set: Vec<_> = units.iter().filter_map(|unit| snapshot.find(unit)).collect();
                match stagger_core::check::may_stop(snapshot, &set) {
                    Ok(()) => Judgement::Yes,
                    Err(why) => Judgement::No { why },
                }
            }
        };
        let down = |at: &usize| !self.world.serves(*at);
        let others = (0..self.world.units.len()).filter(|at| !units.contains(&name(*at)));
        let theirs = if units.len() + others.filter(down).count() <= 1 {
            Judgement::Yes
        } else {
            Judgement::No { why: String::new() }
        };
        Event::Judged {
            units,
            ours,
            theirs,
            facts: None,
        }
    }

    /// Appends and goes on, or stops because the journal is another's.
    fn record(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        events: &[Event],
        then: impl FnOnce(&mut Self, Calls) -> Calls,
    ) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Driving {
            run,
            seen,
            calls,
            unguarded,
            ..
        } = self.conductors[at].clone()
        else {
            return None;
        };
        let run = if events.is_empty() {
            run
        } else {
            match self.append(setup, book, token, run, events) {
                Appended::At(run) => run,
                Appended::Refused => {
                    self.stop(token);
                    return Some(Ok(()));
                }
                Appended::Broken(law) => return Some(Err(law)),
            }
        };
        let calls = then(self, calls);
        // What was seen before the world may have changed is as good as nothing.
        let seen = seen.filter(|_| book.decide(run, self.world.tick, seen) != Decision::Observe);
        self.conductors[at] = Conductor::Driving {
            token,
            run,
            seen,
            calls,
            unguarded,
        };
        Some(Ok(()))
    }

    /// As the task of a call in `Driver`: the lock is looked at here, not where it was announced.
    pub(super) fn send(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        seq: u8,
    ) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Driving { run, calls, .. } = &mut self.conductors[at] else {
            return None;
        };
        let (_, stands) = calls.iter_mut().find(|(at, _)| *at == seq)?;
        let Stands::Ready { earlier } = *stands else {
            return None;
        };
        let what = what(book.fold(*run).run.intent(u64::from(seq))?);
        let ends = book.ends(*run, seq).filter(|_| setup.ages);
        let is_late = ends.is_some_and(|ends| ends < i16::from(self.world.tick));
        let mut ends = ends.and_then(|ends| u8::try_from(ends).ok());
        if is_late && setup.has(Safeguard::SentInTime) {
            if earlier == Earlier::None {
                let answer = Answer::Expired;
                *stands = Stands::Answered { earlier, answer };
                return Some(Ok(()));
            }
            // What is down already loses nothing by it.
            if self.world.serves(what.unit()) {
                return self.judge_again(setup, book, token, what.unit());
            }
            ends = None;
        }
        *stands = Stands::Sent { earlier };
        let rail = what.rail(setup);
        if rail != Visits::Fenced && setup.has(Safeguard::SenderStops) && !self.lock.lives.contains(&token) {
            return None;
        }
        if earlier == Earlier::Stray && !self.waited_out(setup, token, seq, what)
            || !self.guarded(setup, token, what.unit())
        {
            return None;
        }
        self.world.send(seq, token, what, ends);
        Some(Ok(()))
    }

    /// As `Driver::judge_again`: both judges are asked once more about what nobody knows whether it began. To be asked in
    /// vain changes nothing.
    fn judge_again(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        unit: usize,
    ) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Driving { run, .. } = self.conductors[at] else {
            return None;
        };
        let seen = self.look(book, run);
        let judged = self.judge(book, Some(seen), vec![name(unit)]);
        let Event::Judged {
            ours: Judgement::Yes,
            theirs: Judgement::Yes,
            ..
        } = &judged
        else {
            return None;
        };
        self.record(setup, book, token, &[judged], |_, calls| calls)
    }

    /// As `Driver::try_later`: what is bounded has ended before its intent is tried again.
    fn waited_out(&self, setup: &Setup, token: u8, seq: u8, what: What) -> bool {
        let mut flight = self.world.flight.iter();
        what.rail(setup) != Visits::Bounded
            || !setup.has(Safeguard::WaitOut)
            || !flight.any(|call| call.seq == seq && call.token == token)
    }

    /// An ensure that finds what it wants is done, and has sent nothing.
    pub(super) fn read(&mut self, setup: &Setup, book: &Book, token: u8, seq: u8) -> Option<Result<(), Law>> {
        let what = self.answer_unsent(setup, book, token, seq, Answer::Done)?;
        (self.guarded(setup, token, what.unit()) && self.world.is_so(what)).then_some(Ok(()))
    }

    /// A unit cannot be reached. In the model it can be again later, so only entering fails by it.
    pub(super) fn not_reached(
        &mut self,
        setup: &Setup,
        book: &Book,
        token: u8,
        seq: u8,
    ) -> Option<Result<(), Law>> {
        let what = self.answer_unsent(setup, book, token, seq, Answer::NotSent)?;
        matches!(what, What::Enter(_)).then_some(Ok(()))
    }

    fn answer_unsent(
        &mut self,
        setup: &Setup,
        book: &Book,
        token: u8,
        seq: u8,
        answer: Answer,
    ) -> Option<What> {
        let at = self.index(token);
        let Conductor::Driving { run, calls, .. } = &mut self.conductors[at] else {
            return None;
        };
        let (_, stands) = calls.iter_mut().find(|(at, _)| *at == seq)?;
        let Stands::Ready { earlier } = *stands else {
            return None;
        };
        *stands = Stands::Answered { earlier, answer };
        let what = what(book.fold(*run).run.intent(u64::from(seq))?);
        (earlier != Earlier::Stray || self.waited_out(setup, token, seq, what)).then_some(what)
    }

    /// An answer is taken by the driver's own rule: it settles the intent, or the call is made again.
    pub(super) fn hear(
        &mut self,
        setup: &Setup,
        book: &mut Book,
        token: u8,
        seq: u8,
    ) -> Option<Result<(), Law>> {
        let at = self.index(token);
        let Conductor::Driving { calls, .. } = &mut self.conductors[at] else {
            return None;
        };
        let (_, stands) = calls.iter_mut().find(|(at, _)| *at == seq)?;
        let Stands::Answered { earlier, answer } = *stands else {
            return None;
        };
        let answer = match answer {
            Answer::Done => Ok(String::new()),
            Answer::Refused => Err(BackendError::permanent("call", "fenced out")),
            // The backend reads again and tries again: the same call to the driver.
            Answer::Conflict => {
                *stands = Stands::Ready { earlier };
                return Some(Ok(()));
            }
            Answer::Lost if setup.has(Safeguard::LostIsNotFailed) => {
                Err(BackendError::transient("call", "no answer").outcome_unknown())
            }
            Answer::Lost | Answer::NotSent => Err(BackendError::transient("call", "no answer")),
            Answer::Expired => Err(BackendError::expired("call", "it was agreed to too long ago")),
        };
        let earlier = match earlier {
            Earlier::Stray if !setup.has(Safeguard::LostIsNotFailed) => Earlier::None,
            Earlier::None | Earlier::Adopted | Earlier::Stray => earlier,
        };
        match protocol::outcome_of(answer, earlier) {
            Err(_) => {
                *stands = Stands::Ready {
                    earlier: Earlier::Stray,
                };
                Some(Ok(()))
            }
            Ok(outcome) => {
                let settled = Event::Settled {
                    intent: u64::from(seq),
                    outcome,
                };
                self.record(setup, book, token, &[settled], |_, mut calls| {
                    calls.retain(|(at, _)| *at != seq);
                    calls
                })
            }
        }
    }
}

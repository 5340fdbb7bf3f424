//! The whole: the lock, the journal, the conductors and the cluster, and every step that one of them
//! can take next.

use stagger_engine::protocol::Earlier;

use super::book::{Book, FoldIx, Sight};
use super::laws::{self, Law};
use super::rails::{Safeguard, Setup};
use super::world::{Answer, Call, UNITS, World};

/// The lock in the cluster. Who holds it is known by its token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lock {
    pub(crate) token: u8,
    pub(crate) held: bool,
    /// Tokens whose time is not over: who has one of them believes that the lock is its own.
    pub(crate) lives: Vec<u8>,
}

impl Lock {
    fn lapsed(&self) -> bool {
        !self.lives.contains(&self.token)
    }
}

/// How a call stands in the process that makes it, and what is known of earlier ones for the same intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stands {
    Ready { earlier: Earlier },
    Sent { earlier: Earlier },
    Answered { earlier: Earlier, answer: Answer },
}

/// A process that carries out the run, or would.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Conductor {
    Away,
    /// It has the lock, and not yet the journal.
    Locked {
        token: u8,
    },
    /// It has written that it is the holder, and done nothing else.
    Adopted {
        token: u8,
        run: FoldIx,
    },
    Driving {
        token: u8,
        run: FoldIx,
        /// What it observed.
        seen: Option<Sight>,
        calls: Vec<(u8, Stands)>,
        /// Where the fence is not raised yet, as the unit was not reached.
        unguarded: Option<usize>,
    },
}

impl Conductor {
    pub(crate) fn token(&self) -> Option<u8> {
        match self {
            Self::Away => None,
            Self::Locked { token } | Self::Adopted { token, .. } | Self::Driving { token, .. } => {
                Some(*token)
            }
        }
    }
}

/// A state of the whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct System {
    pub(crate) lock: Lock,
    /// The newest token that the journal has met.
    pub(crate) token: u8,
    pub(crate) journal: FoldIx,
    /// Holders up to this token have another journal, on another machine; 0: there is only one.
    pub(crate) apart: u8,
    pub(crate) conductors: Vec<Conductor>,
    pub(crate) world: World,
}

/// What can happen next. Conductors are named by their tokens, calls by their place in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    TakeLock,
    Lapse(u8),
    Adopt(u8),
    BeginElsewhere(u8),
    RuleOut(u8),
    RuleOutBut(u8, usize),
    Go(u8),
    Send(u8, u8),
    Read(u8, u8),
    NotReached(u8, u8),
    Hear(u8, u8),
    Stop(u8),
    Land(usize),
    End(usize),
    LoseCall(usize),
    LoseAnswer(usize),
    Age,
    Fall(usize),
    Rise(usize),
}

impl System {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            lock: Lock {
                token: 0,
                held: false,
                lives: Vec::new(),
            },
            token: 0,
            journal: 0,
            apart: 0,
            conductors: vec![Conductor::Away; setup.conductors],
            world: World::new(setup),
        }
    }

    /// All steps that may be possible; [`System::after`] says which are.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::TakeLock];
        steps.extend(self.lock.lives.iter().map(|token| Step::Lapse(*token)));
        for conductor in &self.conductors {
            match conductor {
                Conductor::Away => continue,
                Conductor::Locked { token } => {
                    steps.extend([Step::Adopt(*token), Step::BeginElsewhere(*token)]);
                }
                Conductor::Adopted { token, .. } => {
                    steps.push(Step::RuleOut(*token));
                    steps.extend((0..UNITS).map(|unit| Step::RuleOutBut(*token, unit)));
                }
                Conductor::Driving { token, calls, .. } => {
                    steps.push(Step::Go(*token));
                    for (seq, stands) in calls {
                        match stands {
                            Stands::Ready { .. } => {
                                steps.extend([
                                    Step::Send(*token, *seq),
                                    Step::Read(*token, *seq),
                                    Step::NotReached(*token, *seq),
                                ]);
                            }
                            Stands::Answered { .. } => steps.push(Step::Hear(*token, *seq)),
                            Stands::Sent { .. } => {}
                        }
                    }
                }
            }
            steps.extend(conductor.token().map(Step::Stop));
        }
        for (at, call) in self.world.flight.iter().enumerate() {
            steps.push(if call.running {
                Step::End(at)
            } else {
                Step::Land(at)
            });
            // A call that is lost on its way goes unanswered first.
            if !call.forgotten {
                steps.push(Step::LoseAnswer(at));
            } else if !call.running {
                steps.push(Step::LoseCall(at));
            }
        }
        steps.push(Step::Age);
        steps.extend((0..UNITS).flat_map(|unit| [Step::Fall(unit), Step::Rise(unit)]));
        steps
    }

    /// The state after a step; `None`: it is not possible now, or changes nothing.
    pub(crate) fn after(&self, setup: &Setup, book: &mut Book, step: Step) -> Option<Result<Self, Law>> {
        let mut next = self.clone();
        match next.take(setup, book, step) {
            None => None,
            Some(Err(law)) => Some(Err(law)),
            Some(Ok(())) => {
                next.tidy(setup, book);
                match laws::broken(setup, book, &next) {
                    Some(law) => Some(Err(law)),
                    None => (next != *self).then_some(Ok(next)),
                }
            }
        }
    }

    /// Brings states that can lead to nothing different to one form.
    fn tidy(&mut self, setup: &Setup, book: &Book) {
        let journal = &book.fold(self.journal).run;
        self.world
            .tidy(setup, |seq| journal.intent(u64::from(seq)).is_some());
        for at in 0..self.conductors.len() {
            let Conductor::Driving {
                token, seen, calls, ..
            } = &mut self.conductors[at]
            else {
                continue;
            };
            // Whatever one that was overtaken writes is refused: all that it can still do is to send.
            if setup.has(Safeguard::JournalToken) && *token < self.token {
                *seen = None;
                calls.retain(|(_, stands)| match stands {
                    Stands::Ready { .. } | Stands::Sent { .. } => true,
                    Stands::Answered { answer, .. } => {
                        matches!(answer, Answer::Lost | Answer::Conflict)
                    }
                });
                if calls.is_empty() {
                    let token = *token;
                    self.stop(token);
                }
            }
        }
        let (lock, conductors) = (&mut self.lock, &self.conductors);
        let newest = lock.token;
        lock.lives
            .retain(|token| *token == newest || conductors.iter().any(|c| c.token() == Some(*token)));
        self.conductors.sort();
    }

    pub(crate) fn index(&self, token: u8) -> usize {
        self.conductors
            .iter()
            .position(|c| c.token() == Some(token))
            .unwrap()
    }

    fn take(&mut self, setup: &Setup, book: &mut Book, step: Step) -> Option<Result<(), Law>> {
        // The last holder meets no more faults: then the end must be in reach.
        let faults_left = self.lock.token < setup.tokens;
        let over = book.fold(self.journal).run.ended().is_some();
        match step {
            Step::TakeLock => {
                let free = !self.lock.held || self.lock.lapsed() || !setup.has(Safeguard::Lock);
                let at = self.conductors.iter().position(|c| *c == Conductor::Away)?;
                if !free || over || !faults_left {
                    return None;
                }
                let token = self.lock.token + 1;
                self.lock.token = token;
                self.lock.held = true;
                self.lock.lives.push(token);
                self.conductors[at] = Conductor::Locked { token };
            }
            Step::Lapse(token) => {
                if token == self.lock.token && !faults_left {
                    return None;
                }
                self.lock.lives.retain(|other| *other != token);
            }
            Step::Stop(token) => {
                if token == self.lock.token && !faults_left {
                    return None;
                }
                self.stop(token);
            }
            Step::Adopt(token) => return Some(self.adopt(setup, book, token)),
            Step::BeginElsewhere(token) => return self.begin_elsewhere(setup, book, token),
            Step::RuleOut(token) => return self.rule_out(setup, book, token, None),
            Step::RuleOutBut(token, unit) => return self.rule_out(setup, book, token, Some(unit)),
            Step::Go(token) => return self.go(setup, book, token),
            Step::Send(token, seq) => return self.send(setup, book, token, seq),
            Step::Read(token, seq) => return self.read(setup, book, token, seq),
            Step::NotReached(token, seq) => return self.not_reached(setup, book, token, seq),
            Step::Hear(token, seq) => return self.hear(setup, book, token, seq),
            Step::Land(at) => {
                let call = self.world.flight[at].clone();
                match self.world.land(setup, at)? {
                    Err(law) => return Some(Err(law)),
                    Ok(None) => {}
                    Ok(Some(answer)) => self.answer(&call, answer),
                }
            }
            Step::End(at) => {
                let call = self.world.flight[at].clone();
                match self.world.end(setup, at) {
                    Err(law) => return Some(Err(law)),
                    Ok(answer) => self.answer(&call, answer),
                }
            }
            Step::Age => return self.world.age(setup).then_some(Ok(())),
            Step::Fall(unit) => return self.world.fall(unit).then_some(Ok(())),
            Step::Rise(unit) => return self.world.rise(unit).then_some(Ok(())),
            Step::LoseCall(at) => {
                self.world.flight.remove(at);
            }
            Step::LoseAnswer(at) => {
                let call = self.world.flight[at].clone();
                // One late call of an intent is enough to do all harm.
                if self
                    .world
                    .flight
                    .iter()
                    .any(|other| other.forgotten && other.seq == call.seq)
                {
                    return None;
                }
                self.answer(&call, Answer::Lost);
                self.world.flight[at].forgotten = true;
                self.world.flight.sort();
            }
        }
        Some(Ok(()))
    }

    /// The process ends; what it has sent goes on.
    pub(crate) fn stop(&mut self, token: u8) {
        let at = self.index(token);
        self.conductors[at] = Conductor::Away;
        for call in &mut self.world.flight {
            call.forgotten |= call.token == token;
        }
        self.world.flight.sort();
    }

    fn answer(&mut self, call: &Call, answer: Answer) {
        if call.forgotten {
            return;
        }
        for conductor in &mut self.conductors {
            if let Conductor::Driving { token, calls, .. } = conductor
                && *token == call.token
            {
                for (seq, stands) in calls {
                    if let Stands::Sent { earlier } = *stands
                        && *seq == call.seq
                    {
                        *stands = Stands::Answered { earlier, answer };
                    }
                }
            }
        }
    }
}

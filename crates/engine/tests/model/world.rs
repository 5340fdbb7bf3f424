//! The cluster: two units that may not be down together, and the calls that are on their way to them.

use super::laws::Law;
use super::rails::{Safeguard, Setup, Visits};

/// How many units there are.
pub(crate) const UNITS: usize = 2;

/// The last tick: where time passes, it does so once.
pub(crate) const LAST_TICK: u8 = 1;

/// A unit as it truly is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unit {
    pub(crate) up: bool,
    pub(crate) new: bool,
    pub(crate) guarded: bool,
    /// It went down by itself, at that tick.
    pub(crate) fell: Option<u8>,
    /// The newest token that it has met.
    fence: u8,
    /// Counts its changes.
    generation: u8,
    /// The newest token whose effect it has had.
    last: u8,
}

/// What a call ensures, on which unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Enter(usize),
    Leave(usize),
    /// Back into service as it was: it could not be entered.
    LeaveAgain(usize),
    Take(usize),
    Drop(usize),
}

impl What {
    pub(crate) fn unit(self) -> usize {
        match self {
            Self::Enter(unit)
            | Self::Leave(unit)
            | Self::LeaveAgain(unit)
            | Self::Take(unit)
            | Self::Drop(unit) => unit,
        }
    }

    pub(crate) fn rail(self, setup: &Setup) -> Visits {
        match self {
            Self::Enter(_) | Self::Leave(_) | Self::LeaveAgain(_) => setup.visits,
            Self::Take(_) | Self::Drop(_) => Visits::Bounded,
        }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, unit) = match self {
            Self::Enter(unit) => ("enter", unit),
            Self::Leave(unit) => ("leave", unit),
            Self::LeaveAgain(unit) => ("leave again", unit),
            Self::Take(unit) => ("guard", unit),
            Self::Drop(unit) => ("unguard", unit),
        };
        write!(f, "{what} u.{}", unit + 1)
    }
}

/// A call on its way, or a command at work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) seq: u8,
    pub(crate) token: u8,
    pub(crate) what: What,
    generation: u8,
    /// The last tick at which it may begin; `None`: whenever.
    ends: Option<u8>,
    /// It is at work on its host.
    pub(crate) running: bool,
    /// Nobody waits for its answer any more.
    pub(crate) forgotten: bool,
}

/// What a call answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Done,
    /// It was refused, and would be the next time.
    Refused,
    /// Somebody else changed the unit in between: read and try again.
    Conflict,
    /// None came; it may still land.
    Lost,
    /// The host was not reached: nothing was sent.
    NotSent,
    /// Nothing was begun, since what the judges had said was too old.
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct World {
    pub(crate) units: [Unit; UNITS],
    pub(crate) flight: Vec<Call>,
    /// What time it is.
    pub(crate) tick: u8,
    /// Whether a unit may still go down by itself: one does, once.
    may_fall: bool,
    /// Intents whose command has ended: hosts keep the result.
    kept: Vec<u8>,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let unit = Unit {
            up: true,
            new: false,
            guarded: false,
            fell: None,
            fence: 0,
            generation: 0,
            last: 0,
        };
        Self {
            units: [unit.clone(), unit],
            flight: Vec::new(),
            tick: 0,
            may_fall: setup.ages,
            kept: Vec::new(),
        }
    }

    /// Time passes. What is no command on a host has landed or died by then.
    pub(crate) fn age(&mut self, setup: &Setup) -> bool {
        let may = |call: &Call| call.what.rail(setup) == Visits::Fenced;
        let passes = setup.ages && self.tick < LAST_TICK && self.flight.iter().all(may);
        self.tick += u8::from(passes);
        passes
    }

    /// A unit goes down by itself.
    pub(crate) fn fall(&mut self, unit: usize) -> bool {
        let falls = std::mem::take(&mut self.may_fall);
        if falls {
            self.units[unit].fell = Some(self.tick);
        }
        falls
    }

    /// It comes back.
    pub(crate) fn rise(&mut self, unit: usize) -> bool {
        self.units[unit].fell.take().is_some()
    }

    pub(crate) fn serves(&self, unit: usize) -> bool {
        self.units[unit].up && self.units[unit].fell.is_none()
    }

    /// Whether a call would stop a unit though another has been down for longer than an approval lasts.
    fn goes_by_an_old_word(&self, call: &Call) -> bool {
        let What::Enter(unit) = call.what else {
            return false;
        };
        let mut others = (0..UNITS).filter(|at| *at != unit);
        let long_down = |at: usize| self.units[at].fell.is_some_and(|since| since < self.tick);
        self.serves(unit) && others.any(long_down)
    }

    pub(crate) fn send(&mut self, seq: u8, token: u8, what: What, ends: Option<u8>) {
        let generation = self.units[what.unit()].generation;
        self.flight.push(Call {
            seq,
            token,
            what,
            generation,
            ends,
            running: false,
            forgotten: false,
        });
        self.flight.sort();
    }

    /// Whether the state that a call would ensure is there: a backend may read that without a call.
    pub(crate) fn is_so(&self, what: What) -> bool {
        let unit = &self.units[what.unit()];
        match what {
            What::Enter(_) => !unit.up,
            What::Leave(_) => unit.up && unit.new,
            What::LeaveAgain(_) => unit.up && !unit.new,
            What::Take(_) => unit.guarded,
            What::Drop(_) => !unit.guarded,
        }
    }

    /// As `Backend::raise_fence`: units refuse older tokens from now on, or have another generation.
    /// `false`: an older command is at work, which is waited for.
    pub(crate) fn raise_fence(&mut self, setup: &Setup, token: u8, units: &[usize]) -> bool {
        match setup.visits {
            Visits::Fenced => !setup.has(Safeguard::WorldFence) || self.raise(token, units),
            Visits::Conditional => {
                for unit in units {
                    self.units[*unit].generation += 1;
                }
                true
            }
            Visits::Bounded => true,
        }
    }

    fn raise(&mut self, token: u8, units: &[usize]) -> bool {
        let older = |call: &Call| call.running && call.token < token && units.contains(&call.what.unit());
        if self.flight.iter().any(older) {
            return false;
        }
        for unit in units {
            self.units[*unit].fence = self.units[*unit].fence.max(token);
        }
        true
    }

    /// Whether calls that die within a known time, of holders before that token, may still be there.
    pub(crate) fn has_older_bounded(&self, setup: &Setup, token: u8) -> bool {
        let bounded = |call: &Call| call.what.rail(setup) == Visits::Bounded && call.token < token;
        self.flight.iter().any(bounded)
    }

    /// A call reaches its unit. `None`: it waits there for another to end.
    pub(crate) fn land(&mut self, setup: &Setup, at: usize) -> Option<Result<Option<Answer>, Law>> {
        let call = self.flight[at].clone();
        match call.what.rail(setup) {
            Visits::Fenced => return self.land_on_host(setup, at),
            Visits::Conditional => {
                if setup.has(Safeguard::Generation)
                    && call.generation != self.units[call.what.unit()].generation
                {
                    self.flight.remove(at);
                    return Some(Ok(Some(Answer::Conflict)));
                }
            }
            Visits::Bounded => {}
        }
        self.flight.remove(at);
        if self.goes_by_an_old_word(&call) && setup.watches(Law::NoOldWord) {
            return Some(Err(Law::NoOldWord));
        }
        Some(self.take_effect(setup, &call).map(|()| Some(Answer::Done)))
    }

    fn land_on_host(&mut self, setup: &Setup, at: usize) -> Option<Result<Option<Answer>, Law>> {
        let call = self.flight[at].clone();
        let at_work = |other: &&Call| other.running && other.what.unit() == call.what.unit();
        if setup.has(Safeguard::WorldFence) {
            let fence = self.units[call.what.unit()].fence;
            if call.token < fence {
                self.flight.remove(at);
                return Some(Ok(Some(Answer::Refused)));
            }
            // To raise the fence means to wait for commands of older tokens.
            if !self.raise(call.token, &[call.what.unit()]) {
                return None;
            }
        }
        if setup.has(Safeguard::EffectLock) {
            if self.kept.contains(&call.seq) {
                self.flight.remove(at);
                return Some(Ok(Some(Answer::Done)));
            }
            if self
                .flight
                .iter()
                .filter(at_work)
                .any(|other| other.seq == call.seq)
            {
                return None;
            }
        }
        if setup.has(Safeguard::BegunInTime) && call.ends.is_some_and(|ends| ends < self.tick) {
            self.flight.remove(at);
            return Some(Ok(Some(Answer::Expired)));
        }
        if self.goes_by_an_old_word(&call) && setup.watches(Law::NoOldWord) {
            return Some(Err(Law::NoOldWord));
        }
        let twice = self.kept.contains(&call.seq) || self.flight.iter().any(|other| at_work(&other));
        if twice && setup.watches(Law::EffectOnce) {
            return Some(Err(Law::EffectOnce));
        }
        self.flight[at].running = true;
        self.flight.sort();
        Some(Ok(None))
    }

    /// A command on a host ends.
    pub(crate) fn end(&mut self, setup: &Setup, at: usize) -> Result<Answer, Law> {
        let call = self.flight.remove(at);
        if !self.kept.contains(&call.seq) {
            self.kept.push(call.seq);
            self.kept.sort_unstable();
        }
        self.take_effect(setup, &call).map(|()| Answer::Done)
    }

    /// Every effect is an ensure: it changes nothing where the state wanted is there.
    fn take_effect(&mut self, setup: &Setup, call: &Call) -> Result<(), Law> {
        let unit = &mut self.units[call.what.unit()];
        let before = unit.clone();
        match call.what {
            What::Enter(_) => unit.up = false,
            What::Leave(_) => (unit.up, unit.new) = (true, true),
            What::LeaveAgain(_) => (unit.up, unit.new) = (true, false),
            What::Take(_) => unit.guarded = true,
            What::Drop(_) => unit.guarded = false,
        }
        let changed = *unit != before;
        if changed && call.what.rail(setup) == Visits::Conditional {
            unit.generation += 1;
        }
        if changed && call.token < unit.last && setup.watches(Law::NewerThenNeverOlder) {
            return Err(Law::NewerThenNeverOlder);
        }
        unit.last = unit.last.max(call.token);
        Ok(())
    }

    /// Forgets what can make no difference any more: results that nobody can ask for, and calls that
    /// would be refused or find their work done with nobody listening. Fences and generations only grow.
    pub(crate) fn tidy(&mut self, setup: &Setup, open: impl Fn(u8) -> bool) {
        let (units, kept, tick) = (&self.units, &self.kept, self.tick);
        self.flight.retain(|call| {
            let unit = &units[call.what.unit()];
            let dead = match call.what.rail(setup) {
                Visits::Fenced => {
                    setup.has(Safeguard::WorldFence) && call.token < unit.fence
                        || setup.has(Safeguard::EffectLock) && kept.contains(&call.seq)
                        || setup.has(Safeguard::BegunInTime) && call.ends.is_some_and(|ends| ends < tick)
                }
                Visits::Conditional => setup.has(Safeguard::Generation) && call.generation != unit.generation,
                Visits::Bounded => false,
            };
            !(dead && call.forgotten && !call.running)
        });
        let flight = &self.flight;
        self.kept
            .retain(|seq| open(*seq) || flight.iter().any(|call| call.seq == *seq));
    }

    /// What an observation shows, as a number.
    pub(crate) fn view(&self) -> u8 {
        (0..UNITS).fold(0, |view, at| {
            view << 2 | u8::from(self.serves(at)) << 1 | u8::from(self.units[at].new)
        })
    }
}

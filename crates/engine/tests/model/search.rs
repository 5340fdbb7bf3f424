//! Every state that can be reached, the nearest first.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::book::Book;
use super::laws::Law;
use super::rails::Setup;
use super::system::{Step, System};

/// What a search has found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) journals: usize,
    pub(crate) took: Duration,
    /// The first law that was broken, and the shortest way there.
    pub(crate) broken: Option<(Law, Vec<String>)>,
    /// Whether the run can end after a takeover.
    pub(crate) ends_after_takeover: bool,
}

/// Searches from the beginning, until a law is broken or nothing is left.
pub(crate) fn search(setup: &Setup) -> Found {
    from(setup, &mut Book::new(setup.guard), System::new(setup))
}

/// Searches from that state.
pub(crate) fn from(setup: &Setup, book: &mut Book, first: System) -> Found {
    let started = Instant::now();
    let first = Rc::new(first);
    let mut known: BTreeMap<Rc<System>, u32> = BTreeMap::new();
    let mut states: Vec<Rc<System>> = vec![Rc::clone(&first)];
    let mut came: Vec<(u32, Step)> = vec![(0, Step::TakeLock)];
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut steps = 0;
    let mut broken = None;
    let mut ends_after_takeover = false;
    known.insert(first, 0);
    let mut at = 0;
    'all: while at < states.len() {
        let system = Rc::clone(&states[at]);
        ends_after_takeover |= system.lock.token > 1 && is_over(book, &system);
        for step in system.steps() {
            match system.after(setup, book, step) {
                None => {}
                Some(Err(law)) => {
                    broken = Some((law, way(book, &states, &came, at, Some(step))));
                    break 'all;
                }
                Some(Ok(next)) => {
                    steps += 1;
                    let new = states.len() as u32;
                    let next = Rc::new(next);
                    let place = *known.entry(Rc::clone(&next)).or_insert(new);
                    if place == new {
                        states.push(next);
                        came.push((at as u32, step));
                        before.push(Vec::new());
                    }
                    before[place as usize].push(at as u32);
                }
            }
        }
        at += 1;
    }
    if broken.is_none() && setup.watches(Law::EndReachable) {
        let over = |at: usize| is_over(book, &states[at]) || is_spent(setup, &states[at]);
        if let Some(stuck) = stuck(&before, over) {
            broken = Some((Law::EndReachable, way(book, &states, &came, stuck, None)));
        }
    }
    Found {
        states: states.len(),
        steps,
        journals: book.len(),
        took: started.elapsed(),
        broken,
        ends_after_takeover,
    }
}

fn is_over(book: &Book, system: &System) -> bool {
    book.fold(system.journal).run.ended().is_some()
}

/// Whether nobody is there any more and nobody can come, as the model's tokens are all given out: then a
/// run that was begun elsewhere by one that had lost the lock waits for a token beyond the model.
fn is_spent(setup: &Setup, system: &System) -> bool {
    setup.stranger
        && system.lock.token == setup.tokens
        && system
            .conductors
            .iter()
            .all(|conductor| conductor.token().is_none())
}

/// The first state from which the end cannot be reached.
fn stuck(before: &[Vec<u32>], over: impl Fn(usize) -> bool) -> Option<usize> {
    let mut reaches: Vec<bool> = (0..before.len()).map(over).collect();
    let mut left: Vec<usize> = (0..before.len()).filter(|at| reaches[*at]).collect();
    while let Some(at) = left.pop() {
        for from in &before[at] {
            if !reaches[*from as usize] {
                reaches[*from as usize] = true;
                left.push(*from as usize);
            }
        }
    }
    reaches.iter().position(|reaches| !reaches)
}

/// The shortest way to a state, and one step more, in words.
fn way(
    book: &mut Book,
    states: &[Rc<System>],
    came: &[(u32, Step)],
    to: usize,
    last: Option<Step>,
) -> Vec<String> {
    let mut words: Vec<String> = last.map(|step| states[to].tell(book, step)).into_iter().collect();
    let mut at = to;
    while at != 0 {
        let (from, step) = came[at];
        at = from as usize;
        words.push(states[at].tell(book, step));
    }
    words.reverse();
    words
}

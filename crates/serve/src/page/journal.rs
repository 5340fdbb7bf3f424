//! The journal as text, the newest event first, with filters that work without a script.

use maud::{Markup, html};
use stagger_report::event_text::EventLine;
use stagger_report::names::fit;
use stagger_report::page::clock;

use super::PageQuery;

/// So many lines stand on one page.
const LINES: usize = 100;

/// A longer line is cut.
const WIDTH: usize = 300;
/// Of no more lines than that each is shown whole.
const WHOLE: usize = 5;

/// Sorts of lines: what a form calls each, how it is shown, and the words of its lines.
const SORTS: [(&str, &str, &[&str]); 5] = [
    (
        "waves",
        "waves and steps",
        &[
            "started",
            "planned",
            "wave",
            "joined",
            "judged",
            "dropped",
            "passed",
            "recovered",
            "rollback",
            "step",
            "said",
            "ended",
        ],
    ),
    (
        "waits",
        "gates and holds",
        &["gates", "HELD", "released", "behind"],
    ),
    (
        "failures",
        "failures",
        &[
            "failed", "FAILED", "too late", "aside", "restart", "rollback", "rebuild", "collect",
        ],
    ),
    ("people", "operator commands", &["asked"]),
    ("rest", "guards, moves, leases", &["guard", "moves", "lease"]),
];

/// The form of the filters.
pub(super) fn filters(wanted: &PageQuery) -> Markup {
    let of = wanted.of.as_deref().unwrap_or_default();
    html! {
        form #filters method="get" role="search" aria-label="journal" {
            @if let Some(unit) = wanted.unit() { input type="hidden" name="unit" value=(unit); }
            label { "Show " select name="of" {
                option value="" { "everything" }
                @for (sort, text, _) in SORTS { option value=(sort) selected[sort == of] { (text) } }
            } }
            label { "that holds " input type="search" name="q" value=(wanted.q.as_deref().unwrap_or_default()) placeholder="osd.17"; }
            button { "Filter" }
        }
    }
}

/// The lines that are wanted.
pub(super) fn lines(lines: &[EventLine], wanted: &PageQuery) -> Markup {
    let sort = SORTS
        .iter()
        .find(|(sort, ..)| Some(*sort) == wanted.of.as_deref());
    let text = wanted.q.as_deref().unwrap_or_default().trim().to_lowercase();
    let before = wanted
        .before
        .as_deref()
        .and_then(|before| before.parse::<u64>().ok());
    let holds = |line: &&EventLine| {
        sort.is_none_or(|(.., words)| words.contains(&line.word))
            && (text.is_empty()
                || line.text.to_lowercase().contains(&text)
                || line.word.to_lowercase().contains(&text))
    };
    let found: Vec<&EventLine> = lines.iter().filter(holds).collect();
    let upto = before.map_or(found.len(), |before| {
        found.partition_point(|line| line.seq < before)
    });
    let from = upto.saturating_sub(LINES);
    html! {
        p.quiet role="status" {
            (found.len()) " of " (lines.len()) " lines"
            @if found.iter().any(|line| line.text.len() > WIDTH) && found.len() > WHOLE { "; long ones are cut unless " (WHOLE) " or fewer are left" }
            @if found.len() > LINES { "; " (upto - from) " are shown, the newest first" }
        }
        @if upto > from {
            table.journal {
                thead { tr { th.number scope="col" { "event" } th scope="col" { "at" } th scope="col" { "sort" } th scope="col" { "what" } } }
                tbody {
                    @for line in found[from..upto].iter().rev() {
                        tr.urgent[is_urgent(line.word)] {
                            td.number { (line.seq) } td { (clock(line.at)) } td { (line.word) }
                            td { @if found.len() > WHOLE { (fit(&line.text, WIDTH)) } @else { (line.text) } }
                        }
                    }
                }
            }
        }
        @if before.is_some() || from > 0 {
            nav.pages aria-label="pages of the journal" {
                @if before.is_some() { a href={ "?" (wanted.query(None)) "#journal" } { "newest" } }
                @if from > 0 { a href={ "?" (wanted.query(Some(found[from].seq))) "#journal" } { "older" } }
            }
        }
    }
}

fn is_urgent(word: &str) -> bool {
    ["FAILED", "HELD", "failed"].contains(&word)
}

//! The section "asks and grants" of a cluster, on the page: complete without a script.

use maud::{Markup, html};
use stagger_asks::ask::{Ask, AskState};
use stagger_asks::claim::ClaimHolder;
use stagger_asks::ledger::{AskedCluster, Board};
use stagger_asks::view::AskDocument;
use stagger_report::page::timestamp;

use crate::Shared;
use crate::access::{Caller, Role};
use crate::fragments::parts::PagePart;

/// So many are shown of those who wait.
const SHOWN: usize = 50;

/// A part for each cluster where somebody asks or was granted something.
pub(crate) async fn parts(shared: &Shared, caller: &Caller) -> Vec<PagePart> {
    if caller.role < Role::Look {
        return Vec::new();
    }
    let (clusters, _) = shared.asks.clusters(caller).await;
    let mut parts = Vec::new();
    for (cluster, ledger) in clusters {
        let Ok(board) = ledger.board(&cluster.identity).await else {
            continue;
        };
        if board.asks.is_empty() && board.claims.is_empty() {
            continue;
        }
        parts.push(PagePart::new(
            format!("asks-{}", cluster.name),
            &section(&cluster, &board),
        ));
    }
    parts
}

fn section(cluster: &AskedCluster, board: &Board) -> Markup {
    let waiting = board.waiting().count();
    html! {
        article.asks {
            h2 { "Asks and grants of " (cluster.name) }
            @if cluster.gate.is_none() && waiting > 0 {
                p.bad role="status" { "Nobody answers for this cluster: " code { "stagger gate" } " does." }
            }
            div.scroll tabindex="0" role="region" aria-label={ "asks and grants of " (cluster.name) } {
                table {
                    thead { tr { th { "state" } th { "hosts and units" } th { "for" } th { "by" } th { "when" } th { "why" } } }
                    tbody {
                        @for ask in board.granted().map(|(ask, _)| ask) { (row(cluster, ask)) }
                        @for claim in &board.claims {
                            @if let ClaimHolder::Run(run) = &claim.holder {
                                tr {
                                    td { "▼ run" }
                                    td { (names(claim.claim.units.iter().map(ToString::to_string))) }
                                    td {}
                                    td { a href={ "/runs/" (run) } { (run) } }
                                    td { "renewed until " (timestamp(claim.expires)) }
                                    td { "its wave" }
                                }
                            }
                        }
                        @for (ask, _) in board.waiting().take(SHOWN) { (row(cluster, ask)) }
                    }
                }
            }
            @if waiting > SHOWN { p.quiet { "and " (waiting - SHOWN) " more that wait" } }
        }
    }
}

fn row(cluster: &AskedCluster, ask: &Ask) -> Markup {
    let minutes = ask.wanted.hold.div_ceil(60);
    html! {
        tr {
            td { @match &ask.state {
                AskState::Granted(grant) => { @if grant.seen_down { "▼ down" } @else { "✓ granted" } }
                AskState::Waiting(_) => { "… waiting" }
                AskState::Ended { how, .. } => { (how.as_str()) }
            } }
            td { (names(ask.wanted.names().map(str::to_owned))) }
            td { (minutes) " min" }
            td { (ask.wanted.asker) }
            td { @match &ask.state {
                AskState::Granted(grant) => { "until " (timestamp(grant.expires)) }
                AskState::Waiting(answer) => {
                    @match answer.earliest { Some(at) => { (timestamp(at)) } None => { "not known" } }
                    ", " (answer.ahead) " before it"
                }
                AskState::Ended { at, .. } => { (timestamp(*at)) }
            } }
            td { @match &ask.state {
                AskState::Waiting(_) => { (AskDocument::of(ask, cluster).line()) }
                AskState::Granted(_) | AskState::Ended { .. } => { (ask.wanted.why) }
            } }
        }
    }
}

fn names(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    match all.len() {
        0..=8 => all.join(", "),
        many => format!("{} and {} more", all[..8].join(", "), many - 8),
    }
}

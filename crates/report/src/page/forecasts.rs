//! What was expected, beside what came, and how far forecasts are off.

use jiff::SignedDuration;
use maud::{Markup, html};

use crate::duration;
use crate::forecast::{Accuracy, Forecasts};

pub(super) fn forecasts(planned: Option<SignedDuration>, forecasts: &Forecasts) -> Markup {
    let Forecasts {
        learned,
        took,
        accuracy,
        phases,
    } = forecasts;
    html! {
        section {
            h2 { "Forecasts" }
            table {
                tbody {
                    @if let Some(planned) = planned.filter(SignedDuration::is_positive) {
                        tr { th { "by the plan" } td { (duration(planned)) } td { (error_text(planned, *took)) } }
                    }
                    @if let Some(learned) = learned {
                        tr {
                            th { "by " (learned.runs) " earlier " (runs(learned.runs)) }
                            td { (learned.text()) }
                            td { (error_text(learned.median(), *took)) }
                        }
                    }
                    @if let Some(took) = took {
                        tr { th { "took" } td { (duration(*took)) } td { "without what it was held for between waves" } }
                    }
                }
            }
            (past_accuracy(accuracy))
            @if !phases.is_empty() {
                details {
                    summary { "How long each phase took, in this run and in earlier ones of this cluster" }
                    table {
                        thead {
                            tr {
                                th { "kind" } th { "phase" } th.number { "seen" } th.number { "half within" } th.number { "90 % within" }
                            }
                        }
                        tbody {
                            @for times in phases {
                                tr {
                                    td { (times.kind) }
                                    td { (times.phase) }
                                    td.number { (times.seen) }
                                    td.number { (duration(times.median)) }
                                    td.number { (duration(times.ninety)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How far forecasts were off before.
fn past_accuracy(accuracy: &Accuracy) -> Markup {
    let Accuracy {
        runs: count,
        planned,
        learned,
        told,
        under_90,
    } = accuracy;
    html! {
        @if let Some(planned) = planned {
            p {
                "Over " (count) " earlier " (runs(*count)) " plans were off by " (percent(*planned)) " in the median"
                @if let Some(learned) = learned {
                    ", and what was learned of the runs before each by " (percent(*learned)) "; "
                    (under_90) " of " (told) " took no longer than their 90 % forecast"
                }
                "."
            }
        }
    }
}

fn runs(count: usize) -> &'static str {
    if count == 1 { "run" } else { "runs" }
}

fn percent(off: f64) -> String {
    format!("{off:.0} %")
}

/// How far it was off, where the run is over.
fn error_text(expected: SignedDuration, took: Option<SignedDuration>) -> String {
    let Some(took) = took.filter(|_| expected.is_positive()) else {
        return String::new();
    };
    // As in the heading: what came, by what was expected.
    let off = (took.as_secs_f64() / expected.as_secs_f64() - 1.0) * 100.0;
    format!("{off:+.0} %")
}

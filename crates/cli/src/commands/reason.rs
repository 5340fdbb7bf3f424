//! `reason`: the book's page on a reason, from the binary.

use crate::args::Cli;
use crate::documents::{self, ReasonRow, Reasons};
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;

/// The page of the book. A test compares its headings with the sources.
const PAGE: &str = include_str!("../../../../docs/reference/reasons.md");

/// `reason`
pub(crate) fn reason(cli: &Cli, asked: Option<&str>) -> Result<Exit, CliError> {
    let rows: Vec<ReasonRow> = rows()
        .filter(|row| asked.is_none_or(|asked| row.reason == asked))
        .collect();
    if let (Some(asked), true) = (asked, rows.is_empty()) {
        return Err(unknown(asked));
    }
    if cli.json {
        print::json(&documents::REASONS.of(&Reasons { reasons: rows }));
        return Ok(Exit::Done);
    }
    for row in rows {
        print::data_line(&match asked {
            None => row.reason,
            Some(_) => filled(&row.text, print::width().min(WIDEST)),
        });
    }
    Ok(Exit::Done)
}

/// Prose is read no wider.
const WIDEST: usize = 100;

fn rows() -> impl Iterator<Item = ReasonRow> {
    PAGE.split("\n## ").skip(1).map(|part| {
        let (reason, text) = part.split_once('\n').unwrap_or((part, ""));
        ReasonRow {
            reason: reason.trim().to_owned(),
            text: plain_text(text.trim()),
        }
    })
}

/// All reasons.
pub(crate) fn names() -> Vec<String> {
    rows().map(|row| row.reason).collect()
}

fn unknown(asked: &str) -> CliError {
    let nearest = rows().max_by(|a, b| {
        strsim::jaro_winkler(asked, &a.reason).total_cmp(&strsim::jaro_winkler(asked, &b.reason))
    });
    let error = CliError::usage(format!("there is no reason {asked:?}"));
    match nearest {
        Some(nearest) => error.hint(format!(
            "the nearest is {}; `stagger reason` lists all",
            nearest.reason
        )),
        None => error,
    }
}

/// The text without links and emphasis.
fn plain_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let Some((end, open)) = after.find(')').zip(before.rfind('[')) else {
            break;
        };
        out.push_str(&before[..open]);
        out.push_str(&before[open + 1..]);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    out.replace('*', "")
}

/// Each paragraph in lines of that width; lists keep their lines.
fn filled(text: &str, width: usize) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        if ["- ", "|", "```"].iter().any(|mark| paragraph.starts_with(mark)) {
            return paragraph.to_owned();
        }
        let mut lines = vec![String::new()];
        for word in paragraph.split_whitespace() {
            let used = lines.last().map_or(0, |line| line.chars().count());
            if used > 0 && used + 1 + word.chars().count() > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.join("\n")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_emphasis_go_and_lines_are_filled() {
        assert_eq!(
            plain_text("*Look at* [the lock](a.md#x) and [b](c)."),
            "Look at the lock and b."
        );
        assert_eq!(
            filled("one two\nthree four\n\n- a\n- b", 9),
            "one two\nthree\nfour\n\n- a\n- b"
        );
    }

    #[test]
    fn every_reason_of_the_page_has_words() {
        let all: Vec<ReasonRow> = rows().collect();
        assert!(all.len() > 100, "{}", all.len());
        assert!(
            all.iter()
                .all(|row| row.text.len() > 60 && !row.text.contains("]("))
        );
    }
}

//! Wraps lines that are wider than a terminal, at the beginning of a text column.

use std::borrow::Cow;

/// The text with each line that is indented and wider than `width` columns folded between words: what follows stands below where
/// its last column begins. Lines that are not indented stay, as a command that is to be copied does; so do painted ones.
pub(super) fn folded(text: &str, width: usize) -> Cow<'_, str> {
    let wide =
        |line: &str| line.starts_with("  ") && !line.contains('\u{1b}') && line.chars().count() > width;
    if !text.lines().any(wide) {
        return Cow::Borrowed(text);
    }
    let lines = text.split('\n').map(|line| {
        if wide(line) {
            Cow::Owned(fold(line, width))
        } else {
            Cow::Borrowed(line)
        }
    });
    Cow::Owned(lines.collect::<Vec<_>>().join("\n"))
}

fn fold(line: &str, width: usize) -> String {
    let column = last_column(line, width / 2);
    let (head, rest) = line.split_at(column);
    let indent = head.chars().count();
    let mut folded = head.to_owned();
    let mut used = indent;
    for word in rest.split(' ') {
        let length = word.chars().count();
        if used > indent && used + 1 + length > width {
            folded.truncate(folded.trim_end().len());
            folded.push('\n');
            folded.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if used > indent {
            folded.push(' ');
            used += 1;
        }
        folded.push_str(word);
        used += length;
    }
    folded
}

/// The byte at which the line's last column begins that leaves so many columns: what follows two spaces or more.
fn last_column(line: &str, most: usize) -> usize {
    let gaps = line.match_indices("  ");
    gaps.map(|(at, _)| at + line[at..].len() - line[at..].trim_start_matches(' ').len())
        .filter(|&at| line[..at].chars().count() <= most)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn what_follows_stands_below_its_column() {
        let text = "lab\n\n  No undo   last-mon: an older one never joins\n  Back      no\nNext: stagger run upgrade --to 20.2.4";
        assert_eq!(
            folded(text, 30),
            "lab\n\n  No undo   last-mon: an older\n            one never joins\n  Back      no\nNext: stagger run upgrade --to 20.2.4"
        );
    }

    #[test]
    fn what_fits_is_as_it_was_and_what_is_painted_too() {
        for text in [
            "  one  two",
            "",
            "\n",
            "  \u{1b}[31mred\u{1b}[0m and more than fits",
        ] {
            assert_eq!(folded(text, 10), text);
        }
    }

    #[test]
    fn a_word_that_is_wider_than_the_terminal_stays_whole() {
        assert_eq!(
            folded("  a  0123456789012345 b", 12),
            "  a  0123456789012345\n     b"
        );
    }

    #[test]
    fn a_column_far_to_the_right_is_none_to_fold_at() {
        assert_eq!(
            folded("  some words before  one two three", 20),
            "  some words before\n  one two three"
        );
    }
}

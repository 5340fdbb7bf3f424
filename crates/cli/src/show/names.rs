//! Names in few words: `osd.0-9,12`.

use stagger_core::model::UnitId;

/// Units in few words, runs of numbers drawn together.
pub(crate) fn compress<'a>(units: impl IntoIterator<Item = &'a UnitId>) -> String {
    let mut sorted: Vec<&UnitId> = units.into_iter().collect();
    sorted.sort_by(|a, b| a.natural().cmp(&b.natural()));
    let mut groups: Vec<(&str, Vec<u64>)> = Vec::new();
    let mut plain: Vec<String> = Vec::new();
    for unit in sorted {
        match unit.natural() {
            // Only `kind.number` is drawn together; `mon.m0` stays as it is.
            (head, Some(number), text) if head.ends_with('.') && !padded(text, head) => {
                match groups.last_mut() {
                    Some((last, numbers)) if *last == head => numbers.push(number),
                    Some(_) | None => groups.push((head, vec![number])),
                }
            }
            (_, Some(_) | None, _) => plain.push(unit.to_string()),
        }
    }
    plain.extend(
        groups
            .into_iter()
            .map(|(head, numbers)| format!("{head}{}", ranges(&numbers))),
    );
    plain.join(" ")
}

/// `osd.07` is another name than `osd.7`.
fn padded(text: &str, head: &str) -> bool {
    text.len() > head.len() + 1 && text[head.len()..].starts_with('0')
}

fn ranges(numbers: &[u64]) -> String {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            Some(_) | None => spans.push((*number, *number)),
        }
    }
    let text: Vec<_> = spans
        .into_iter()
        .map(|(start, end)| {
            if start == end {
                start.to_string()
            } else {
                format!("{start}-{end}")
            }
        })
        .collect();
    text.join(",")
}

/// The first part of a text that fits, with a mark where it was cut.
pub(crate) fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_drawn_together_and_names_are_not() {
        let units: Vec<UnitId> = ["osd.12", "osd.0", "osd.1", "osd.2", "mon.m0", "mon.m1", "mds.a"]
            .iter()
            .map(|u| UnitId::new(*u).unwrap())
            .collect();
        assert_eq!(compress(&units), "mds.a mon.m0 mon.m1 osd.0-2,12");
    }
}

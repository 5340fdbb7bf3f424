//! Why hroller refuses a file in the text format, with its messages.

use std::fmt::Write as _;

/// Fields that a line has at least, and what a missing one is called.
const GROUP: usize = 4;
const NODE: usize = 9;
const INSTANCE: usize = 10;

/// What hroller says of a text that it refuses; `None`: it takes it, or says something that is not known here.
pub fn refusal(text: &str) -> Option<String> {
    let mut sections = vec![Vec::new()];
    for line in text.lines() {
        if line.is_empty() {
            sections.push(Vec::new());
        } else if let Some(section) = sections.last_mut() {
            section.push(line.split('|').collect::<Vec<&str>>());
        }
    }
    let [groups, nodes, instances, _, ..] = sections.as_slice() else {
        let count = if text.is_empty() { 0 } else { sections.len() };
        return Some(format!(
            "Invalid format of the input file: {count} sections instead of 4 or more"
        ));
    };
    let uuids: Vec<&str> = groups
        .iter()
        .filter_map(|fields| fields.get(1).copied())
        .collect();
    let names: Vec<&str> = nodes
        .iter()
        .filter_map(|fields| fields.first().copied())
        .collect();
    let mut found = groups.iter().filter_map(|fields| group(fields).err());
    found
        .next()
        .or_else(|| nodes.iter().find_map(|fields| node(fields, &uuids).err()))
        .or_else(|| instances.iter().find_map(|fields| instance(fields, &names).err()))
}

fn group(fields: &[&str]) -> Result<(), String> {
    enough("group", fields, GROUP)?;
    word(
        "AllocPolicy",
        fields[2],
        &["preferred", "last_resort", "unallocable"],
    )
}

fn node(fields: &[&str], groups: &[&str]) -> Result<(), String> {
    enough("node", fields, NODE)?;
    let (name, group) = (fields[0], fields[8]);
    if !groups.contains(&group) {
        return Err(format!("Unknown group '{group}' for node {name}"));
    }
    if fields[1..=6].contains(&"?") {
        return Ok(());
    }
    let optional = |at: usize, default: &'static str| fields.get(at).copied().unwrap_or(default);
    for (field, kind) in [
        (fields[1], Number::Any),
        (fields[2], Number::Whole),
        (fields[3], Number::Whole),
        (fields[4], Number::Any),
        (fields[5], Number::Whole),
        (fields[6], Number::Any),
        (optional(13, "1"), Number::Whole),
        (optional(9, "1"), Number::Whole),
        (optional(14, "1.0"), Number::Any),
        (optional(12, "0"), Number::Whole),
    ] {
        number(name, field, kind)?;
    }
    match optional(11, "N") {
        "Y" | "N" => Ok(()),
        other => Err(format!(
            "Invalid exclusive_storage value for node '{name}': {other}"
        )),
    }
}

fn instance(fields: &[&str], nodes: &[&str]) -> Result<(), String> {
    enough("instance", fields, INSTANCE)?;
    let (name, primary, secondary) = (fields[0], fields[6], fields[7]);
    let unknown = [primary, secondary]
        .into_iter()
        .find(|node| !node.is_empty() && !nodes.contains(node));
    if let Some(node) = unknown.or_else(|| primary.is_empty().then_some("")) {
        return Err(format!("Unknown node '{node}' for instance {name}"));
    }
    for field in &fields[1..=3] {
        number(name, field, Number::Whole)?;
    }
    let states: Vec<&str> = crate::model::Status::ALL
        .iter()
        .map(|status| status.word())
        .collect();
    word("InstanceStatus", fields[4], &states)?;
    if !["Y", "N"].contains(&fields[5]) {
        return Err(format!(
            "Invalid auto_balance value '{}' for instance {name}",
            fields[5]
        ));
    }
    let templates: Vec<&str> = crate::model::Template::ALL
        .iter()
        .map(|template| template.word())
        .collect();
    word("DiskTemplate", fields[8], &templates).map_err(|why| format!("Instance {name}: {why}"))?;
    let optional = |at: usize, default: &'static str| fields.get(at).copied().unwrap_or(default);
    number(name, optional(10, "1"), Number::Whole)?;
    match optional(11, "-") {
        "-" => {}
        spindles => number(name, spindles, Number::Whole)?,
    }
    match optional(12, "N") {
        "Y" | "N" => {}
        other => return Err(format!("Invalid forthcoming value '{other}' for instance {name}")),
    }
    if fields[8] == "drbd" && primary == secondary {
        return Err(format!(
            "Instance {name} has same primary and secondary node - {primary}"
        ));
    }
    Ok(())
}

fn enough(what: &str, fields: &[&str], least: usize) -> Result<(), String> {
    if fields.len() >= least {
        return Ok(());
    }
    let shown: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    Err(format!("Invalid/incomplete {what} data: '[{}]'", shown.join(",")))
}

fn word(kind: &str, given: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&given) {
        return Ok(());
    }
    Err(format!("Invalid string value for type {kind}: {}", quoted(given)))
}

/// A text as Haskell shows it; what is no ASCII by its number.
fn quoted(text: &str) -> String {
    let mut shown = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => shown.extend(['\\', letter]),
            ' '..='~' => shown.push(letter),
            other => drop(write!(shown, "\\{}", u32::from(other))),
        }
    }
    shown + "\""
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Whole,
    Any,
}

/// A number as Haskell reads it: spaces before it, nothing after it.
fn number(name: &str, given: &str, kind: Number) -> Result<(), String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let unsigned = given.trim_start();
    let unsigned = unsigned.strip_prefix('-').unwrap_or(unsigned);
    let whole = digits(unsigned);
    let mut rest = &unsigned[whole..];
    let mut is_whole = true;
    if let Some(fraction) = rest.strip_prefix('.').filter(|fraction| digits(fraction) > 0) {
        rest = &fraction[digits(fraction)..];
        is_whole = false;
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits(power) > 0 {
            rest = &power[digits(power)..];
            is_whole = false;
        }
    }
    if whole == 0 || (kind == Number::Whole && !is_whole) {
        return Err(format!("{name}: cannot parse string '{given}'"));
    }
    if rest.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{name}: leftover characters when parsing '{given}': '{rest}'"
    ))
}

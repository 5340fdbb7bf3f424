//! By what failures are known that are Ironic's own, however it is upgraded.
//!
//! A failed request is Ironic's own only if its answer has a signature of this list *and* a line of a service's log, at
//! the same time, has the other half of it. Everything else is ours. A row needs a defect that was reproduced by hand.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::report::Failure;
use super::spec::Service;

/// How far, in seconds, clocks and buffers may take a line of a log out of its request's time.
const SLACK: f64 = 1.0;

/// One defect of Ironic's, as it is seen from outside and in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What we call it.
    pub defect: &'static str,
    /// What happens.
    pub about: &'static str,
    /// The method of the request.
    pub method: &'static str,
    /// How its path begins.
    pub path: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What the answer's body has, in this order.
    pub body: &'static [&'static str],
    /// What a line of a log has, in this order.
    pub log: &'static [&'static str],
}

/// All of them.
pub const SIGNATURES: [Signature; 1] = [Signature {
    defect: "D1",
    about: "from 29.0 to 32.0: a conductor that is pinned answers with a Node of the old version, and in it a TraitList \
            of the new one, which an API of the old release refuses. The write was done.",
    method: "PATCH",
    path: "/v1/nodes/",
    status: 500,
    body: &["Version ", " of TraitList is not supported"],
    log: &["Server-side error: \"Version ", " of TraitList is not supported"],
}];

impl Signature {
    /// Whether the answer has its half.
    pub(super) fn fits(&self, failure: &Failure) -> bool {
        failure.error.is_none()
            && failure.method == self.method
            && failure.path.starts_with(self.path)
            && failure.status == Some(self.status)
            && has_in_order(&failure.body, self.body)
    }

    /// Whether a line of a log has the other half, for that request.
    pub(super) fn is_told(&self, failure: &Failure, line: &Line) -> bool {
        let time = failure.at - SLACK..=failure.at + failure.took + SLACK;
        time.contains(&line.at) && has_in_order(&line.text, self.log)
    }
}

fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| {
        let found = rest.find(part);
        if let Some(at) = found {
            rest = &rest[at + part.len()..];
        }
        found.is_some()
    })
}

/// A line of a service's log that has a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Whose log it is in.
    pub service: Service,
    /// When, in seconds of Unix time.
    pub at: f64,
    /// All of it.
    pub text: String,
}

/// The lines of a log that have a time. Services have no time zone but UTC.
pub(super) fn lines(service: Service, log: &str) -> Vec<Line> {
    let line = |text: &str| {
        let time = text.get(..23)?;
        let at = DateTime::strptime("%Y-%m-%d %H:%M:%S%.f", time).ok()?;
        let at = at.to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(Line {
            service,
            at: at.as_duration().as_secs_f64(),
            text: text.to_owned(),
        })
    };
    log.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_time_and_others_are_left_out() {
        let log = "2026-11-22 13:00:00.250 77 INFO ironic\nTraceback\n2026-11-22 13:00:01.000 77 ERROR é\n\n";
        let found = lines(Service::Api2, log);
        let times: Vec<i64> = found
            .iter()
            .map(|line| (line.at * 1000.0).round() as i64)
            .collect();
        assert_eq!(times, [1_795_352_400_250, 1_795_352_401_000]);
    }

    #[test]
    fn parts_stand_in_their_order() {
        assert!(has_in_order(
            "Version 1.2 of TraitList is not",
            &["Version ", " of TraitList"]
        ));
        assert!(!has_in_order(
            " of TraitList Version ",
            &["Version ", " of TraitList"]
        ));
    }
}

//! Durations in words.

use jiff::SignedDuration;

/// A duration as people say it: `45 s`, `4 min 12 s`, `2 h 10 min`.
pub fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..600 if seconds % 60 != 0 => format!("{} min {} s", seconds / 60, seconds % 60),
        60..3600 => format!("{} min", seconds / 60),
        _ if (seconds % 3600) / 60 == 0 => format!("{} h", seconds / 3600),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_people_say_them() {
        let said: Vec<_> = [0, 45, 60, 252, 600, 3600, 7800]
            .iter()
            .map(|s| duration(SignedDuration::from_secs(*s)))
            .collect();
        assert_eq!(
            said,
            [
                "0 s",
                "45 s",
                "1 min",
                "4 min 12 s",
                "10 min",
                "1 h",
                "2 h 10 min"
            ]
        );
    }
}

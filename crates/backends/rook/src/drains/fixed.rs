//! Budgets over daemons that no failure domain binds: monitors, managers, metadata servers, gateways,
//! mirrors. They follow the number of daemons alone, up and down.

/// What a budget permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permits {
    /// At most so many unavailable.
    MaxUnavailable(u32),
    /// At least so many available.
    MinAvailable(u32),
}

/// Over `count` monitors, of which `out` are not in the quorum: one may go, two where there are five or
/// more, less those that are out already. `None`: two or fewer, of which none can be spared anyway, and a
/// budget would only hang drains.
pub fn monitors(count: u32, out: u32) -> Option<Permits> {
    let spare = match count {
        0..=2 => return None,
        3..=4 => 1,
        5.. => 2,
    };
    Some(Permits::MaxUnavailable(u32::saturating_sub(spare, out)))
}

/// Over managers or mirrors: one may go where there are two or more.
pub fn one_of(count: u32) -> Option<Permits> {
    (count >= 2).then_some(Permits::MaxUnavailable(1))
}

/// Over gateways of a store, or the metadata servers of a file system (its active ones, and as many again
/// where each has a standby): all but one must stay.
pub fn all_but_one(count: u32) -> Option<Permits> {
    (count >= 2).then_some(Permits::MinAvailable(count.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_follow_the_number_of_daemons() {
        let may_go = |count, out| match monitors(count, out) {
            Some(Permits::MaxUnavailable(n)) => Some(n),
            Some(Permits::MinAvailable(_)) | None => None,
        };
        let table = [
            (1, 0),
            (2, 0),
            (3, 0),
            (3, 1),
            (4, 0),
            (5, 0),
            (5, 1),
            (5, 2),
            (7, 3),
        ];
        let told: Vec<_> = table.iter().map(|&(count, out)| may_go(count, out)).collect();
        assert_eq!(
            told,
            [
                None,
                None,
                Some(1),
                Some(0),
                Some(1),
                Some(2),
                Some(1),
                Some(0),
                Some(0)
            ]
        );
        assert_eq!((one_of(1), one_of(2)), (None, Some(Permits::MaxUnavailable(1))));
        assert_eq!(
            (all_but_one(1), all_but_one(3)),
            (None, Some(Permits::MinAvailable(2)))
        );
    }
}

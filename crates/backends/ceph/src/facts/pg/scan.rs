//! A hand-written scanner for placement groups in the list that `pg dump pgs_brief` prints: a million rows of
//! the same simple form.
//!
//! [`super::read`] gives the same result for everything that the scanner accepts, and takes everything else,
//! with its error messages. So nothing here returns an error: there is a map, or there is none. A general
//! parser for these rows took a sixth of the time to a first plan of 10,000 OSDs.

use super::{LARGEST_ACTING, PgId, PgMap, Row};
use crate::facts::pg_state::PgState;

/// Hardly any row has fewer bytes.
const SHORTEST: usize = 96;

/// The groups of `{"pg_ready":true,"pg_stats":[{…},…]}` or of the bare list. `None`: not that, or not plain.
pub(super) fn scan(bytes: &[u8]) -> Option<PgMap> {
    let mut text = Scanner { bytes, at: 0 };
    let wrapped = text.skip(b'{');
    if wrapped {
        while text.key()? != b"pg_stats" {
            text.value()?;
            text.take(b',')?;
        }
    }
    let map = groups(&mut text)?;
    if wrapped {
        text.take(b'}')?;
    }
    text.peek().is_none().then_some(map)
}

fn groups(text: &mut Scanner<'_>) -> Option<PgMap> {
    // Memory that is not written to costs nothing.
    let mut map = PgMap::with_capacity(text.bytes.len() / SHORTEST);
    let mut row = Row::default();
    let mut up = Vec::new();
    text.take(b'[')?;
    if text.skip(b']') {
        return Some(map);
    }
    loop {
        group(text, &mut map, &mut row, &mut up)?;
        if !text.skip(b',') {
            break;
        }
    }
    text.take(b']')?;
    Some(map)
}

/// One row. A key that comes twice, or one that brief rows do not have and that means something, is not plain.
fn group(text: &mut Scanner<'_>, map: &mut PgMap, row: &mut Row, up: &mut Vec<u32>) -> Option<()> {
    let (mut id, mut state, mut acting, mut belongs) = (None, None, None, None);
    text.take(b'{')?;
    loop {
        match text.key()? {
            b"pgid" if id.is_none() => id = Some(PgId::of_bytes(text.text()?)?),
            b"state" if state.is_none() => state = Some(read_state(text.text()?)?),
            b"acting" if acting.is_none() => {
                let begun = text.at;
                text.osds(&mut row.acting)?;
                acting = Some(&text.bytes[begun..text.at]);
            }
            b"up" if belongs.is_none() => belongs = Some(text.list()?),
            b"up_primary" | b"acting_primary" => text.value()?,
            _ => return None,
        }
        if !text.skip(b',') {
            break;
        }
    }
    text.take(b'}')?;
    let (id, state) = (id?, state?);
    let acting = acting?;
    row.up = None;
    // Nearly all groups are clean: nobody asks where those belong, and it is where they are.
    if let Some(bytes) = belongs.filter(|bytes| *bytes != acting || !state.clean()) {
        Scanner { bytes, at: 0 }.osds(up)?;
        row.up = (!state.clean()).then(|| up.clone());
    }
    map.push_row(id, state, row);
    Some(())
}

fn read_state(text: &[u8]) -> Option<PgState> {
    Some(PgState::parse(std::str::from_utf8(text).ok()?))
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.bytes.get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.skip(byte).then_some(())
    }

    /// A text in which nothing is escaped and everything is printable ASCII.
    fn text(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let rest = &self.bytes[self.at..];
        let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
        let length = rest.iter().position(|byte| !plain(*byte))?;
        if rest[length] != b'"' {
            return None;
        }
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// A key, and the colon after it.
    fn key(&mut self) -> Option<&'a [u8]> {
        let key = self.text()?;
        self.take(b':')?;
        Some(key)
    }

    /// A number of 32 bits without a sign.
    fn number(&mut self) -> Option<u32> {
        let first = self.peek()?;
        if !first.is_ascii_digit() {
            return None;
        }
        let begun = self.at;
        let mut number: u32 = 0;
        while let Some(digit) = self.bytes.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            number = number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
            self.at += 1;
        }
        // JSON has no numbers that begin with a zero; one with a fraction ends at something that nobody takes.
        (first != b'0' || self.at == begun + 1).then_some(number)
    }

    /// A value that means nothing here: a whole number, a text, `true` or `false`.
    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.text().map(|_| ()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'-' => {
                self.at += 1;
                // No space may stand between the sign and the number.
                self.bytes.get(self.at).filter(|byte| byte.is_ascii_digit())?;
                self.number().map(|_| ())
            }
            _ => self.number().map(|_| ()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let found = self.bytes[self.at..].starts_with(word);
        self.at += word.len();
        found.then_some(())
    }

    /// The bytes of what may be a list of OSDs; [`Self::osds`] tells whether it is one.
    fn list(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b']')?;
        self.at += end + 1;
        Some(&rest[..=end])
    }

    /// A list of OSDs, in place of what was in it.
    fn osds(&mut self, list: &mut Vec<u32>) -> Option<()> {
        list.clear();
        self.take(b'[')?;
        if self.skip(b']') {
            return Some(());
        }
        loop {
            list.push(self.number()?);
            if !self.skip(b',') {
                break;
            }
        }
        self.take(b']')?;
        (list.len() <= LARGEST_ACTING).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::scan;
    use crate::facts::pg::read::parse;

    const ROW: &str = r#"{"pgid":"1.1f","state":"active+clean","up":[3,4],"acting":[3,4],"up_primary":3,"acting_primary":3}"#;

    fn wrapped(rows: &[&str]) -> String {
        format!("\n{{\"pg_ready\":true,\"pg_stats\":[{}]}}\n", rows.join(","))
    }

    #[test]
    fn brief_rows_are_plain_and_read_to_the_same() {
        let moved = r#"{"pgid":"2.0","state":"active+remapped+backfilling","up":[5,2147483647],"acting":[3],"up_primary":-1,"acting_primary":3}"#;
        let backwards = r#"{"acting":[1], "up":[7], "state":"peering", "pgid":"3.a"}"#;
        for text in [
            wrapped(&[ROW, moved, backwards]),
            wrapped(&[]),
            format!("[{ROW}]"),
            "[]".to_owned(),
        ] {
            let quick = scan(text.as_bytes()).unwrap_or_else(|| panic!("not plain: {text}"));
            assert_eq!(Some(quick), parse(text.as_bytes()).unwrap(), "{text}");
        }
    }

    #[test]
    fn anything_else_is_left_to_the_parser() {
        let one = |from: &str, to: &str| wrapped(&[&ROW.replacen(from, to, 1)]);
        for text in [
            one("1.1f", "1.1g"),
            one("1.1f", r"1.1\u0066"),
            one("[3,4]", "[3,\"4(1)\"]"),
            one("[3,4]", "[3,04]"),
            one("[3,4]", "[3,4.5]"),
            one("[3,4]", "[3,-4]"),
            one("[3,4]", "[3,4294967296]"),
            one("[3,4]", "[3,4,]"),
            one("\"state\"", "\"avail_no_missing\":[],\"state\""),
            one("\"state\"", "\"reported_epoch\":7,\"state\""),
            one("\"state\"", "\"pgid\":\"1.1e\",\"state\""),
            one("\"acting\"", "\"acted\""),
            one("\"up_primary\":3", "\"up_primary\":- 3"),
            wrapped(&[ROW]).replacen("true", "true,", 1),
            wrapped(&[ROW]).replace("]}\n", "]}x"),
            wrapped(&[ROW]).replace("]}\n", "]"),
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
        ] {
            assert!(scan(text.as_bytes()).is_none(), "{text}");
        }
    }

    proptest! {
        /// Whatever stands there: if it is plain, the parser reads the same.
        #[test]
        fn what_is_plain_is_what_the_parser_reads(
            cuts in proptest::collection::vec((0..400_usize, proptest::sample::select(b"0919,.[]{}\":- atfue\\\n".to_vec())), 0..4),
            rows in 0..4_usize,
        ) {
            let mut text = wrapped(&[ROW; 4][..rows]).into_bytes();
            for (at, byte) in cuts {
                let length = text.len();
                text[at % length] = byte;
            }
            if let Some(quick) = scan(&text) {
                let parsed = parse(&text);
                prop_assert!(matches!(&parsed, Ok(Some(map)) if *map == quick), "{}", String::from_utf8_lossy(&text));
            }
        }
    }
}

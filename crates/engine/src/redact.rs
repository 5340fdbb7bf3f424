//! Redaction of secrets in artifacts, journals and errors.
//!
//! Programs print their secrets in many forms. Redacted are: secrets that this process was given; private
//! keys in PEM; passwords in URLs; values of keys whose names end like those of secrets, in INI, YAML, JSON,
//! Python, XML, HTTP headers and on command lines; keys of Ceph; and values that look random. Digests, UUIDs,
//! commits, versions and names stay: without them a log is useless.

use crate::secrets;

const REMOVED: &str = "(removed)";

/// Endings of names whose values are secrets, whatever they look like.
const STRONG: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secretkey",
    "secret_key",
    "access_key",
    "accesskey",
    "api_key",
    "apikey",
    "private_key",
    "auth_token",
    "access_token",
    "refresh_token",
    "credentials",
];

/// Endings of names whose values are often harmless: only what could be a secret goes.
const WEAK: [&str; 5] = ["key", "token", "auth", "cookie", "signature"];

/// The text with its secrets replaced.
pub fn redact(text: &str) -> String {
    let text = secrets::redact_given(text, REMOVED);
    let text = without_pem(&text);
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

fn line(line: &str) -> String {
    let line = without_userinfo(line);
    let line = without_values(&line);
    without_random(&line)
}

/// Private keys, over lines or in one with `\n` in it. One that does not end is taken out to the end.
fn without_pem(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("-----BEGIN ") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let label = from["-----BEGIN ".len()..]
            .split("-----")
            .next()
            .unwrap_or_default();
        if !label.ends_with("PRIVATE KEY") {
            out.push_str("-----BEGIN ");
            rest = &from["-----BEGIN ".len()..];
            continue;
        }
        out.push_str(REMOVED);
        let end = format!("-----END {label}-----");
        rest = from.find(&end).map_or("", |at| &from[at + end.len()..]);
    }
    out.push_str(rest);
    out
}

/// `scheme://user:password@host` without the password.
fn without_userinfo(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, from) = rest.split_at(at + 3);
        out.push_str(before);
        let word = &from[..from.find(ends_a_url).unwrap_or(from.len())];
        let authority = &word[..word.find(['/', '?', '#']).unwrap_or(word.len())];
        // A password that was not encoded may hold a slash; a port is followed by one.
        let user = match authority.rsplit_once('@') {
            Some((user, _)) => Some(user),
            None => word.rsplit_once('@').map(|(user, _)| user).filter(|user| {
                let password = user.split_once(':').map_or("", |(_, password)| password);
                !password.is_empty() && !password.starts_with(|c: char| c.is_ascii_digit())
            }),
        };
        rest = match user {
            Some(user) => {
                match user.split_once(':') {
                    Some((name, password)) if !password.starts_with('{') => {
                        out.push_str(name);
                        out.push(':');
                        out.push_str(REMOVED);
                    }
                    None if user.len() >= 20 => out.push_str(REMOVED),
                    Some(_) | None => out.push_str(user),
                }
                &from[user.len()..]
            }
            None => from,
        };
    }
    out.push_str(rest);
    out
}

fn ends_a_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | '|')
}

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Secret,
    Perhaps,
    /// A whole header: `Basic …`.
    Header,
}

fn secret_kind(name: &str) -> Option<Says> {
    let plain = name.to_ascii_lowercase().replace('-', "_");
    let ends = |endings: &[&str]| endings.iter().any(|ending| plain.ends_with(ending));
    if ["authorization", "proxy_authorization"].contains(&plain.as_str()) {
        Some(Says::Header)
    } else if ends(&STRONG) || plain == "pass" || plain.ends_with("_pass") || name.ends_with("Pass") {
        Some(Says::Secret)
    } else if ends(&WEAK) {
        Some(Says::Perhaps)
    } else {
        None
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Values behind the names of secrets.
fn without_values(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(is_name_char) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // `/etc/stagger/password: not found` tells of a file.
        let is_a_file = out.ends_with('/') && after.starts_with(':');
        out.push_str(name);
        rest = after;
        if is_a_file {
            continue;
        }
        let Some(says) = secret_kind(name.trim_start_matches('-')) else {
            continue;
        };
        let flag = name.starts_with("--");
        let Some(lead) = separator_len(after, flag) else {
            continue;
        };
        let (value, closed) = value(&after[lead..], says);
        let is_gone = after[lead + closed..].starts_with(REMOVED);
        let goes = match says {
            Says::Secret | Says::Header => !value.is_empty() && !is_gone && !flag_follows(flag, value),
            Says::Perhaps => could_be_secret(value),
        };
        if goes {
            out.push_str(&after[..lead]);
            out.push_str(&after[lead..lead + closed]);
            out.push_str(REMOVED);
            rest = &after[lead + closed + value.len()..];
        }
    }
    out.push_str(rest);
    out
}

fn flag_follows(flag: bool, value: &str) -> bool {
    flag && value.starts_with('-')
}

/// The length of the separator between a name and its value, if one follows: `="`, `': u'`, ` => `, `>`;
/// after a flag a space is enough.
fn separator_len(after: &str, flag: bool) -> Option<usize> {
    let closed = after.trim_start_matches(['"', '\'', '\\', ']', ')']);
    let spaced = closed.trim_start_matches([' ', '\t']);
    let value = if let Some(value) = spaced.strip_prefix("=>") {
        value
    } else if let Some(value) = spaced.strip_prefix(['=', ':']) {
        // `key::x` and `key==x` are other things.
        value.strip_prefix('=').unwrap_or(value)
    } else if let Some(value) = closed.strip_prefix('>') {
        value
    } else if flag && spaced.len() < closed.len() {
        spaced
    } else {
        return None;
    };
    let value = value.trim_start_matches([' ', '\t']);
    (!value.is_empty()).then(|| after.len() - value.len())
}

/// The value, and how much of quotes and prefixes stands before it.
fn value(text: &str, says: Says) -> (&str, usize) {
    // `u'…'` and `b"…"` of Python, `\"…\"` of JSON in JSON.
    let prefix = match text.as_bytes() {
        [b'u' | b'b', b'\'' | b'"', ..] => 1,
        _ => 0,
    };
    let from = &text[prefix..];
    for quote in ["\\\"", "\"", "'", "`"] {
        if let Some(inner) = from.strip_prefix(quote) {
            let mut end = inner.find(quote).unwrap_or(inner.len());
            // A quote behind a backslash does not end it.
            while quote.len() == 1 && end < inner.len() && inner[..end].ends_with('\\') {
                end += 1 + inner[end + 1..].find(quote).unwrap_or(inner.len() - end - 1);
            }
            return (&inner[..end], prefix + quote.len());
        }
    }
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '&' | '}' | ']' | ')' | '<' | '`');
    let mut end = text.find(ends).unwrap_or(text.len());
    if says == Says::Header {
        // Scheme and value.
        let rest = &text[end..];
        let next = rest.trim_start_matches(' ');
        let word = next.find(ends).unwrap_or(next.len());
        end += rest.len() - next.len() + word;
    }
    (text[..end].trim_end_matches([',', ';', '.']), 0)
}

/// Not a number, not a word of prose, not a path, not a digest.
fn could_be_secret(value: &str) -> bool {
    let letters = value.bytes().any(|b| b.is_ascii_alphabetic());
    let digits = value.bytes().any(|b| b.is_ascii_digit());
    let of_base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-' | b'.');
    value.len() >= 12
        && letters
        && digits
        && value.bytes().all(of_base64)
        && !value.starts_with(['/', '.'])
        && !is_digest(value)
        && !is_made_of_words(value)
}

/// Hexadecimal, or a UUID.
fn is_digest(word: &str) -> bool {
    let upper = word.bytes().any(|b| b.is_ascii_uppercase());
    let lower = word.bytes().any(|b| b.is_ascii_lowercase());
    word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') && !(upper && lower)
}

/// Short pieces, each of letters or of digits alone: `rook-ceph-osd-12`, `2026.11.23`, `node3/disk-7`.
fn is_made_of_words(word: &str) -> bool {
    word.split(['-', '_', '.', '/', '=']).all(|piece| {
        let letters = piece.trim_end_matches(|c: char| c.is_ascii_digit());
        let lower = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        letters.bytes().all(|b| b.is_ascii_lowercase())
            || letters.bytes().all(|b| b.is_ascii_uppercase())
            // What Kubernetes puts behind the names of pods.
            || (piece.len() < 12 && lower(piece))
    })
}

/// What looks drawn at random, wherever it stands.
fn without_random(line: &str) -> String {
    let of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '_' | '-' | '.');
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(of_token) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(|c| !of_token(c)).unwrap_or(rest.len());
        let padding = rest[end..].bytes().take_while(|b| *b == b'=').count().min(2);
        let token = &rest[..end];
        if is_random(token, padding) && !ends_as_a_digest_begins(&out) {
            out.push_str(REMOVED);
            rest = &rest[end + padding..];
        } else {
            out.push_str(token);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// `SHA256:` of ssh, `sha256-` of browsers.
fn ends_as_a_digest_begins(before: &str) -> bool {
    let before = before.to_ascii_lowercase();
    let name = before.trim_end_matches([':', '-', '=', '(']);
    ["sha1", "sha256", "sha384", "sha512", "md5"]
        .iter()
        .any(|digest| name.len() < before.len() && name.ends_with(digest))
}

fn is_random(token: &str, padding: usize) -> bool {
    // A Ceph key is 28 bytes: type, time, length, 16 random ones.
    let ceph = (token.starts_with("AQ") || token.starts_with("Ag")) && token.len() == 38 && padding == 2;
    let aws = (token.starts_with("AKIA") || token.starts_with("ASIA"))
        && token.len() == 20
        && token
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    let jwt = token.starts_with("eyJ") && token.len() >= 30 && token.matches('.').count() == 2;
    let fernet = token.starts_with("gAAAAA") && token.len() >= 40;
    ceph || aws || jwt || fernet || is_mixed(token)
}

/// Small letters, capitals and digits change place so often that no word is like it. Drawn at random it is six
/// times in ten; in names of people's making it is below one in three.
fn is_mixed(token: &str) -> bool {
    const SHORTEST: usize = 24;
    let class = |b: u8| match b {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    // What is joined by dashes, dots and underscores is judged piece by piece.
    token.split(['-', '_', '.']).any(|piece| {
        let classes: Vec<u8> = piece.bytes().map(class).collect();
        let turns = classes.windows(2).filter(|two| two[0] != two[1]).count();
        piece.len() >= SHORTEST
            && [0, 1, 2].iter().all(|class| classes.contains(class))
            && !is_digest(piece)
            && piece.matches('/').count() * 8 <= piece.len()
            && turns * 100 >= piece.len() * 38
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEPH: &str = "AQBnkkBnAAAAABAAcVkvqkpTiEkfYCoBW5Lc1Q==";
    const AWS: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const RANDOM: &str = "hunter2Hunter2";

    #[test]
    fn secrets_do_not_get_through() {
        let lines = [
            format!("[client.admin]\n\tkey = {CEPH}"),
            format!("{{\"entity\":\"osd.0\",\"key\":\"{CEPH}\",\"caps\":{{}}}}"),
            format!("mon got {CEPH} from peer"),
            format!("key={CEPH}"),
            format!("client.admin:{CEPH}"),
            format!("--key={CEPH} --id admin"),
            format!("auth: ({CEPH})"),
            format!("rgw secret_key={RANDOM} rest"),
            format!("password: {RANDOM}"),
            format!("mysql+pymysql://ironic:{RANDOM}@db:3306/ironic"),
            format!("connection = postgresql://ironic:{RANDOM}@db/ironic?charset=utf8"),
            format!("cannot reach https://admin:{RANDOM}@ironic.example.org:6385/v1: refused"),
            format!("amqp://guest:{RANDOM}/{RANDOM}@rabbit:5672//"),
            format!("db_password={RANDOM}"),
            format!("admin_password = {RANDOM}"),
            format!("MYSQL_PWD={RANDOM} mysqldump ironic"),
            format!("PGPASSWORD='{RANDOM}' psql"),
            format!("{{'username': 'ironic', 'password': '{RANDOM}', 'host': 'db'}}"),
            format!("{{u'password': u'{RANDOM}'}}"),
            format!("{{\"auth\": {{\"password\": \"{RANDOM} and more {RANDOM}\"}}}}"),
            format!("{{\\\"ipmi_password\\\": \\\"{RANDOM}\\\"}}"),
            format!("driver_info={{'redfish_password': '{RANDOM}'}}"),
            format!("adminPass: {RANDOM}"),
            format!("rabbit_pass = {RANDOM}"),
            format!("<password>{RANDOM}</password>"),
            format!("ipmitool -I lanplus --password {RANDOM} power status"),
            format!("curl --proxy-password={RANDOM} x"),
            "Authorization: Basic aXJvbmljOmh1bnRlcjI=".to_owned(),
            format!("authorization: Bearer {RANDOM}"),
            format!("-H 'Authorization: Bearer {RANDOM}' https://x"),
            "X-Auth-Token: gAAAAABnQJ_5kq3Zt1xRz7Yb2kPqLmN0vWcXhUeTsDfGjHkAlSbNmCqWeRtYuI".to_owned(),
            format!("access_token={RANDOM}&next=1"),
            format!("GET /v1/nodes?password={RANDOM}&x=1"),
            "aws_access_key_id AKIAIOSFODNN7EXAMPLE used".to_owned(),
            format!("aws_secret_access_key = {AWS}"),
            format!("signed with {AWS} today"),
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
                .to_owned(),
            format!(
                "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA{RANDOM}\nabc{RANDOM}\n-----END RSA PRIVATE KEY-----\nrest"
            ),
            format!("ssl_key: -----BEGIN PRIVATE KEY-----\\nMIIE{RANDOM}\\n-----END PRIVATE KEY-----\\n"),
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE{RANDOM} and the log ends here"),
            format!("client_secret => {RANDOM}"),
            format!("api-key: {RANDOM}"),
            format!("memcache_secret_key = \"{RANDOM}\""),
            "token=q7Xk2mPz91LwYb3R".to_owned(),
            format!("vnc passwd : {RANDOM}"),
            "GITHUB ghp_16C7e42F292c6912E7710c838347Ae178B4a".to_owned(),
        ];
        assert!(lines.len() >= 30);
        for line in lines {
            let clean = redact(&line);
            for secret in [
                CEPH,
                &CEPH[..38],
                AWS,
                "unter2",
                "aXJvbmlj",
                "gAAAA",
                "AKIA",
                "eyJ",
                "q7Xk2mPz91",
                "16C7e42F",
            ] {
                assert!(!clean.contains(secret), "{line:?} became {clean:?}");
            }
            assert!(clean.contains(REMOVED), "{line:?} became {clean:?}");
            assert_eq!(redact(&clean), clean, "what is redacted twice is redacted once");
        }
    }

    #[test]
    fn what_a_log_is_read_for_stays() {
        let lines = [
            "osd.3 down at 03:12:04, key: none of this = fine",
            "fsid 8e1f0bd4-3f0c-4a4f-9c1e-5a8f1e2d3c4b",
            "image quay.io/ceph/ceph@sha256:9f35728f6070a596500c0804814a12ab6b98e05067316dc64876fdab4b76bc02",
            "commit 59807616e1fa2540724bfbac14d7976d7e4a3860 of main",
            "ceph version 18.2.7 (6b0e988052ec84cf2d4a54ff9bbbc5e720b621ad) reef (stable)",
            "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU no comment",
            "h1 has seen the fencing token 6 of another holder",
            "token=000000000001 of the lock",
            "{\"key\": \"config/mon/mon_allow_pool_delete\", \"value\": \"true\"}",
            "key: rook-ceph-osd-12-6d5f8c9b7",
            "https://ironic.example.org:6385/v1/nodes@v2",
            "http://10.0.0.7:6385 answers",
            "postgres://stagger@db/stagger",
            "mysql://reader:{password}@db/ironic",
            "password_file = \"/etc/stagger/password\"",
            "the URL of the store has a password in it, name a file",
            "1 pools have too many placement groups; see PG_NOT_DEEP_SCRUBBED",
            "/var/lib/ceph/osd/ceph-12/block -> /dev/mapper/ceph--2f1a-osd--block--77",
            "crash 2026-11-23T03:12:04.123456Z_1f0e9a3c-9a3e-4a51-a2a5-b5c0ffee0001",
            "bypass: yes, compass = north",
            "CephFilesystemMultiActiveStandbyReplay2026 is served",
            "run 20261123-0312-ab12, effect 20261123-0312-ab12-7-restart",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "Basic authentication is off; Bearer of the message",
            "cephx: verify_authorizer could not decrypt ticket info",
            "author: anna, signature = none",
            "keyring = /etc/ceph/ceph.client.admin.keyring",
            "everybody on this machine may read /etc/stagger/password: `chmod o-rwx /etc/stagger/password`",
            "ssh -o BatchMode=yes root@node3.example.org sh -s",
        ];
        assert!(lines.len() >= 20);
        for line in lines {
            assert_eq!(redact(line), line);
        }
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(redact("a\n\nb\n"), "a\n\nb\n");
        assert_eq!(redact(""), "");
        for odd in [
            "password=",
            "password",
            "key=\"",
            "://",
            "://@",
            "token: u'",
            "--password",
            "-----BEGIN ",
            "password=\"\\\"",
        ] {
            redact(odd);
        }
    }
}

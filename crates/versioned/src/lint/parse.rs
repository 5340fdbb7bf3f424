//! A file, split into its statements.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlparser::ast::{ObjectName, Statement};
use sqlparser::dialect::{MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The database whose SQL a migration is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// PostgreSQL.
    PostgreSql,
    /// `MySQL` and `MariaDB`.
    MySql,
    /// SQLite.
    Sqlite,
}

impl Dialect {
    /// In this order they are tried where nobody says which one it is.
    pub const ALL: [Self; 3] = [Self::PostgreSql, Self::Sqlite, Self::MySql];

    /// Its word: `postgresql`, `mysql`, `sqlite`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PostgreSql => "postgresql",
            Self::MySql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    fn grammar(self) -> &'static dyn sqlparser::dialect::Dialect {
        match self {
            Self::PostgreSql => &PostgreSqlDialect {},
            Self::MySql => &MySqlDialect {},
            Self::Sqlite => &SQLiteDialect {},
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|dialect| dialect.as_str() == word);
        found.ok_or_else(|| format!("no dialect is called {word:?}; those are postgresql, mysql, sqlite"))
    }
}

/// What stands in a file.
pub(super) struct Parsed {
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) statements: Vec<Written>,
}

/// A statement.
pub(super) struct Written {
    /// The line, from 1.
    pub(super) line: u64,
    /// Which of the tokens is its first.
    pub(super) first: usize,
    pub(super) command: Result<Command, Unparsed>,
}

/// What a statement does.
pub(super) enum Command {
    /// What sqlparser knows.
    Sql(Box<Statement>),
    /// `DROP INDEX CONCURRENTLY`.
    DropConcurrently(ObjectName),
    /// `PRAGMA name = value`, or `PRAGMA name(value)`.
    Pragma {
        /// Without a schema, in small letters.
        name: String,
        /// In small letters, without quotes; empty where there is none.
        value: String,
    },
    /// `ALTER TABLE table ATTACH PARTITION partition …`.
    Attach {
        table: ObjectName,
        partition: ObjectName,
    },
    /// `ALTER TABLE table DETACH PARTITION partition …`.
    Detach {
        table: ObjectName,
        partition: ObjectName,
        concurrently: bool,
    },
    /// `ALTER DEFAULT PRIVILEGES … GRANT …`.
    GrantByDefault,
    /// `CREATE FUNCTION` or `CREATE PROCEDURE`.
    Function { name: ObjectName, replace: bool },
}

/// Why a statement cannot be parsed.
pub(super) struct Unparsed {
    pub(super) why: String,
    /// Its end is not certain, so that no statement after it is in the list.
    pub(super) open: bool,
}

/// Statements with their lines. Without a dialect it is the first that knows all of the file. An error is of the whole file, with
/// a line.
pub(super) fn statements(text: &str, dialect: Option<Dialect>) -> Result<Parsed, (u64, String)> {
    if let Some(dialect) = dialect {
        return parse(text, dialect.grammar());
    }
    let mut tried = Dialect::ALL
        .into_iter()
        .map(|dialect| parse(text, dialect.grammar()));
    let first = tried
        .next()
        .unwrap_or_else(|| parse(text, Dialect::PostgreSql.grammar()));
    if is_understood(&first) {
        return first;
    }
    tried.find(is_understood).unwrap_or(first)
}

fn is_understood(parsed: &Result<Parsed, (u64, String)>) -> bool {
    let statements = parsed.as_ref().map(|parsed| &parsed.statements);
    statements.is_ok_and(|statements| statements.iter().all(|written| written.command.is_ok()))
}

fn parse(text: &str, dialect: &dyn sqlparser::dialect::Dialect) -> Result<Parsed, (u64, String)> {
    let tokens = Tokenizer::new(dialect, text)
        .tokenize_with_location()
        .map_err(|error| (error.location.line, ParserError::from(error).to_string()))?;
    let mut statements = Vec::new();
    let mut begin = Some(0);
    while let Some(at) = begin {
        begin = parse_from(&tokens, at, dialect, &mut statements);
    }
    Ok(Parsed { tokens, statements })
}

/// Parses up to the first statement that sqlparser does not know, and answers where to go on after that.
fn parse_from(
    tokens: &[TokenWithSpan],
    begin: usize,
    dialect: &dyn sqlparser::dialect::Dialect,
    found: &mut Vec<Written>,
) -> Option<usize> {
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens[begin..].to_vec());
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        let rest = tokens.iter().enumerate().skip(begin + parser.index());
        let (first, token) = { rest }.find(|(_, token)| !matches!(token.token, Token::Whitespace(_)))?;
        let (command, next) = match complete_statement(&mut parser) {
            Ok(statement) => (Ok(Command::Sql(Box::new(statement))), None),
            Err(error) => {
                let end = end(&tokens[first..]);
                let ours = end.and_then(|end| own_command(&tokens[first..first + end], dialect));
                let command = ours.ok_or_else(|| Unparsed {
                    why: error.to_string(),
                    open: end.is_none(),
                });
                (command, Some(end))
            }
        };
        found.push(Written {
            line: token.span.start.line,
            first,
            command,
        });
        if let Some(end) = next {
            return end.map(|end| first + end);
        }
    }
}

/// A statement up to its end: without that, what is left of it would be read as the next one.
fn complete_statement(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let statement = parser.parse_statement()?;
    let next = parser.peek_token();
    if next.token == Token::SemiColon || next.token == Token::EOF {
        return Ok(statement);
    }
    let (found, line) = (next.token, next.span.start.line);
    let why = format!("expected the end of the statement, found {found} in line {line}");
    Err(ParserError::ParserError(why))
}

/// What sqlparser does not know and we do, of the tokens of one statement.
fn own_command(tokens: &[TokenWithSpan], dialect: &dyn sqlparser::dialect::Dialect) -> Option<Command> {
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens.to_vec());
    if parser.parse_keyword(Keyword::PRAGMA) {
        return pragma(&mut parser);
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::INDEX, Keyword::CONCURRENTLY]) {
        let _ = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_object_name(false).ok()?;
        let _ = parser.parse_keyword(Keyword::RESTRICT);
        return ends(&parser).then_some(Command::DropConcurrently(name));
    }
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::TABLE]) {
        return partition(&mut parser);
    }
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::DEFAULT, Keyword::PRIVILEGES]) {
        let mut words = tokens.iter().filter_map(keyword);
        let action = words.find(|word| matches!(word, Keyword::GRANT | Keyword::REVOKE));
        return (action == Some(Keyword::GRANT)).then_some(Command::GrantByDefault);
    }
    if parser.parse_keyword(Keyword::CREATE) {
        let replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
        if parser
            .parse_one_of_keywords(&[Keyword::FUNCTION, Keyword::PROCEDURE])
            .is_some()
        {
            let name = parser.parse_object_name(false).ok()?;
            return Some(Command::Function { name, replace });
        }
    }
    None
}

fn ends(parser: &Parser<'_>) -> bool {
    parser.peek_token().token == Token::EOF
}

fn pragma(parser: &mut Parser<'_>) -> Option<Command> {
    let name = parser.parse_object_name(false).ok()?;
    let name = name.0.last()?.as_ident()?.value.to_lowercase();
    let bracket = parser.consume_token(&Token::LParen);
    let mut value = String::new();
    if bracket || parser.consume_token(&Token::Eq) {
        // A number may have a sign.
        if parser.consume_token(&Token::Minus) {
            value.push('-');
        }
        let token = parser.next_token().token.to_string();
        value.push_str(token.trim_matches(['\'', '"', '`']));
        if bracket {
            parser.expect_token(&Token::RParen).ok()?;
        }
    }
    ends(parser).then(|| Command::Pragma {
        name,
        value: value.to_lowercase(),
    })
}

/// What follows ALTER TABLE, if it is about a partition.
fn partition(parser: &mut Parser<'_>) -> Option<Command> {
    let _ = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let _ = parser.parse_keyword(Keyword::ONLY);
    let table = parser.parse_object_name(false).ok()?;
    let attach = parser.parse_keyword(Keyword::ATTACH);
    if !attach && !parser.parse_keyword(Keyword::DETACH) {
        return None;
    }
    parser.expect_keyword(Keyword::PARTITION).ok()?;
    let partition = parser.parse_object_name(false).ok()?;
    if attach {
        // What bounds it has is of no interest here.
        let bounds = parser.parse_keyword(Keyword::DEFAULT) || parser.parse_keyword(Keyword::FOR);
        return bounds.then_some(Command::Attach { table, partition });
    }
    let concurrently = parser.parse_keyword(Keyword::CONCURRENTLY);
    if parser
        .peek_token()
        .token
        .to_string()
        .eq_ignore_ascii_case("finalize")
    {
        parser.next_token();
    }
    ends(parser).then_some(Command::Detach {
        table,
        partition,
        concurrently,
    })
}

/// Where a statement that cannot be parsed ends: at the semicolon that is neither in parentheses nor in the body of a function
/// or a trigger. Strings, with dollars too, and comments are one token each. None where it is not certain.
#[expect(clippy::wildcard_enum_match_arm, reason = "other tokens end nothing")]
fn end(tokens: &[TokenWithSpan]) -> Option<usize> {
    let has_body = has_body(tokens);
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::SemiColon if depth == 0 => return Some(at),
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            // A command of psql ends with its line.
            Token::Backslash => return None,
            _ => match keyword(token) {
                Some(Keyword::BEGIN | Keyword::CASE) if has_body => depth += 1,
                Some(Keyword::END) if has_body => depth = depth.checked_sub(1)?,
                // A body of something else; rows that follow a COPY.
                Some(Keyword::BEGIN | Keyword::STDIN) => return None,
                _ => {}
            },
        }
    }
    (depth == 0).then_some(tokens.len())
}

/// Whether it makes a function or a trigger: `CREATE OR REPLACE CONSTRAINT TRIGGER` has the most words.
fn has_body(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter_map(keyword).take(5);
    let body = |word| matches!(word, Keyword::FUNCTION | Keyword::PROCEDURE | Keyword::TRIGGER);
    words.next() == Some(Keyword::CREATE) && words.any(body)
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    let Token::Word(word) = &token.token else {
        return None;
    };
    Some(word.keyword)
}

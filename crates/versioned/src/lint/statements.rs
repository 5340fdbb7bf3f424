//! A file, split into its statements.

use sqlparser::ast::{ObjectType, Statement};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

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
    pub(super) statement: Result<Statement, Unparsed>,
    /// It drops an index CONCURRENTLY.
    pub(super) concurrently: bool,
}

/// Why a statement cannot be parsed.
pub(super) struct Unparsed {
    pub(super) why: String,
    /// Its end is not certain, so that no statement after it is in the list.
    pub(super) open: bool,
}

/// Statements with their lines. What PostgreSQL does not know may be SQLite's. An error is of the whole file, with a line.
pub(super) fn statements(text: &str) -> Result<Parsed, (u64, String)> {
    let postgres = parse(text, &PostgreSqlDialect {});
    if understood(&postgres) {
        return postgres;
    }
    let sqlite = parse(text, &SQLiteDialect {});
    if understood(&sqlite) { sqlite } else { postgres }
}

fn understood(parsed: &Result<Parsed, (u64, String)>) -> bool {
    let statements = parsed.as_ref().map(|parsed| &parsed.statements);
    statements.is_ok_and(|statements| statements.iter().all(|written| written.statement.is_ok()))
}

fn parse(text: &str, dialect: &dyn Dialect) -> Result<Parsed, (u64, String)> {
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

/// Parses up to the first statement that it does not know, and answers where to go on after that.
fn parse_from(
    tokens: &[TokenWithSpan],
    begin: usize,
    dialect: &dyn Dialect,
    found: &mut Vec<Written>,
) -> Option<usize> {
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens[begin..].to_vec());
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        let rest = tokens.iter().enumerate().skip(begin + parser.index());
        let (first, token) = { rest }.find(|(_, token)| !matches!(token.token, Token::Whitespace(_)))?;
        let concurrently = parser.parse_keywords(&[Keyword::DROP, Keyword::INDEX, Keyword::CONCURRENTLY]);
        let (statement, next) = match whole(&mut parser, concurrently) {
            Ok(statement) => (Ok(statement), None),
            Err(error) => {
                let end = end(&tokens[first..]);
                let unparsed = Unparsed {
                    why: error.to_string(),
                    open: end.is_none(),
                };
                (Err(unparsed), Some(end))
            }
        };
        found.push(Written {
            line: token.span.start.line,
            first,
            statement,
            concurrently,
        });
        if let Some(end) = next {
            return end.map(|end| first + end);
        }
    }
}

/// A statement up to its end: without that, what is left of it would be read as the next one.
fn whole(parser: &mut Parser<'_>, concurrently: bool) -> Result<Statement, ParserError> {
    let statement = if concurrently {
        drop_concurrently(parser)?
    } else {
        parser.parse_statement()?
    };
    let next = parser.peek_token();
    if next.token == Token::SemiColon || next.token == Token::EOF {
        return Ok(statement);
    }
    let (found, line) = (next.token, next.span.start.line);
    let why = format!("expected the end of the statement, found {found} in line {line}");
    Err(ParserError::ParserError(why))
}

/// What follows DROP INDEX CONCURRENTLY, which sqlparser does not know: one name, with nothing that depends on it.
fn drop_concurrently(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let names = vec![parser.parse_object_name(false)?];
    let restrict = parser.parse_keyword(Keyword::RESTRICT);
    Ok(Statement::Drop {
        object_type: ObjectType::Index,
        if_exists,
        names,
        cascade: false,
        restrict,
        purge: false,
        temporary: false,
        table: None,
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

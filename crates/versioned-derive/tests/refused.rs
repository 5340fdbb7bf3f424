//! What the derive refuses, with the words that the compiler prints.
#![allow(missing_docs, reason = "test code")]

#[test]
fn what_is_declared_wrongly_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

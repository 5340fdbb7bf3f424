//! Settings: those of this connection, and those that affect others too.

/// Parts of `SET` that reach beyond the connection: `MySQL`'s global and persistent variables, and what belongs to accounts.
const BEYOND: [&str; 6] = [
    "global",
    "persist",
    "persist_only",
    "password",
    "default",
    "resource",
];

/// Whether `SET …` holds for this connection only.
pub(super) fn is_of_session(set: &str) -> bool {
    let text = set.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    // `default` is a value too: `SET search_path TO DEFAULT`; as a role of an account it comes first.
    let mut words = words.filter(|word| !word.is_empty()).skip(1).enumerate();
    !words.any(|(at, word)| BEYOND.contains(&word) && (word != "default" || at == 0))
}

/// Pragmas of SQLite that say something, or concern this connection only, or a number that no service of ours reads.
/// By <https://www.sqlite.org/pragma.html>.
const HARMLESS: [&str; 31] = [
    "analysis_limit",
    "application_id",
    "automatic_index",
    "busy_timeout",
    "cache_size",
    "cache_spill",
    "case_sensitive_like",
    "cell_size_check",
    "checkpoint_fullfsync",
    "collation_list",
    "database_list",
    "defer_foreign_keys",
    "foreign_key_check",
    "foreign_key_list",
    "foreign_keys",
    "fullfsync",
    "ignore_check_constraints",
    "index_info",
    "index_list",
    "integrity_check",
    "legacy_alter_table",
    "mmap_size",
    "optimize",
    "quick_check",
    "read_uncommitted",
    "recursive_triggers",
    "synchronous",
    "table_info",
    "table_list",
    "temp_store",
    "user_version",
];

/// Whether older services work on after `PRAGMA name = value`, of SQLite; an empty value asks for one.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    if HARMLESS.contains(&name) {
        return true;
    }
    match name {
        // All connections follow, and readers no longer wait for writers.
        "journal_mode" => value.is_empty() || value == "wal",
        // The other value keeps all others out.
        "locking_mode" => value.is_empty() || value == "normal",
        "wal_checkpoint" => true,
        _ => value.is_empty(),
    }
}

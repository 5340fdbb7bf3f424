//! The tables of ours, and every kind of write that a run makes in them.

use crate::sql::Statement;

/// The tables. Their names are ours, since they may share a database with others.
pub(super) const TABLES: [&str; 5] = [
    "create table if not exists stagger_ironic_identity (place varchar(200) not null primary key, id varchar(64) not null, \
     name varchar(200) not null unique)",
    "create table if not exists stagger_anchor (cluster varchar(200) not null primary key, anchor text not null)",
    "create table if not exists stagger_lock (cluster varchar(200) not null primary key, fence bigint not null, \
     beat bigint not null, claim text)",
    "create table if not exists stagger_ironic_service (cluster varchar(200) not null, service varchar(200) not null, \
     rel varchar(64) not null, pin varchar(64), state varchar(16) not null, run varchar(200) not null, \
     noted varchar(40) not null, primary key (cluster, service))",
    "create table if not exists stagger_ironic_mark (cluster varchar(200) not null, rel varchar(64) not null, \
     mark varchar(64) not null, detail text not null, noted varchar(40) not null, primary key (cluster, rel, mark))",
];

/// What the rows are called that are written to be taken back.
const KEY: &str = "stagger/preflight";

/// Each kind of write, on rows of that name.
const WRITES: [&str; 9] = [
    "insert into stagger_ironic_identity (place, id, name) values (?, ?, ?)",
    "insert into stagger_anchor (cluster, anchor) values (?, '')",
    "delete from stagger_anchor where cluster = ?",
    "insert into stagger_lock (cluster, fence, beat, claim) values (?, 0, 0, null)",
    "update stagger_lock set fence = 1, beat = 1, claim = '' where cluster = ?",
    "insert into stagger_ironic_service (cluster, service, rel, pin, state, run, noted) values (?, ?, '', null, '', '', '')",
    "delete from stagger_ironic_service where cluster = ?",
    "insert into stagger_ironic_mark (cluster, rel, mark, detail, noted) values (?, '', ?, '', '')",
    "delete from stagger_ironic_mark where cluster = ?",
];

/// Each kind of write, to be tried and taken back.
pub(super) fn writes() -> Vec<Statement> {
    let statement = |text: &str| Statement::new(text, vec![KEY.into(); text.matches('?').count()]);
    WRITES.map(statement).into()
}

-- release: unreleased

-- Which revision the schema is at, and the lowest that a program must know to work on it.
create table schema_revision (
  revision integer not null,
  serves_from integer not null
);

-- In which version of its object each row is: empty in those that were there before.
alter table journal add column version text;
alter table run add column version text;
alter table asked add column version text;

-- The lock of a cluster, for worlds that have no place for one.
create table lease (
  cluster text primary key,
  fence integer not null,
  claim text,
  expires real not null
);

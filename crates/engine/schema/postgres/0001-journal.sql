-- release: unreleased

-- Which revision the schema is at, and the lowest that a program must know to work on it.
create table schema_revision (
  revision bigint not null,
  serves_from bigint not null
);

create table cluster (
  id text primary key,
  fence bigint not null check (fence >= 0),
  holder text not null
);

create table run (
  id text primary key,
  cluster text not null references cluster (id),
  started text not null,
  events bigint not null,
  version text
);

create table journal (
  cluster text not null references cluster (id),
  run text not null references run (id),
  seq bigint not null,
  fence bigint not null,
  at text not null,
  version text,
  body text not null,
  hash bytea not null,
  primary key (run, seq)
);

create table asked (
  id bigint generated always as identity primary key,
  run text not null references run (id),
  at text not null,
  version text,
  body text not null,
  "by" text not null,
  taken boolean not null default false
);

-- The lock of a cluster, for worlds that have no place for one. The row stays, so that its token only grows.
create table lease (
  cluster text primary key,
  fence bigint not null check (fence >= 0),
  claim text,
  expires timestamptz not null
);

-- release: unreleased

create table if not exists cluster (
  id text primary key,
  fence integer not null,
  holder text not null
);

create table if not exists run (
  id text primary key,
  cluster text not null references cluster (id),
  started text not null,
  events integer not null
);

create table if not exists journal (
  run text not null references run (id),
  seq integer not null,
  fence integer not null,
  at text not null,
  body text not null,
  hash blob not null,
  primary key (run, seq)
) without rowid;

create table if not exists asked (
  id integer primary key autoincrement,
  run text not null references run (id),
  at text not null,
  body text not null,
  "by" text not null,
  taken integer not null default 0
);

-- release: unreleased

-- Which cluster a run was of, as that knows itself, and the token of who ended it.
alter table run add column identity text;
alter table run add column ended_by bigint;

-- Who carries a run out, and when that was last said. No claim: they have said that they stopped.
create table presence (
  run text primary key,
  fence bigint not null check (fence >= 0),
  claim text,
  renewed timestamptz not null,
  expires double precision not null
);

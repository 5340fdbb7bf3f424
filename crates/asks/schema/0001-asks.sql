-- release: unreleased

-- A cluster whose hosts may be asked for. `version` moves with each claim: who has judged by an older one judges again.
-- `fence` only grows. `gate`: the process that answers, for as long as its lease lasts. Times are seconds since 1970.
create table gate_cluster (
  identity text primary key,
  name text not null,
  version bigint not null,
  fence bigint not null,
  gate text,
  gate_fence bigint not null,
  gate_expires double precision not null
);

-- What somebody takes down, or has down.
create table gate_claim (
  cluster text not null,
  fence bigint not null,
  holder text not null,
  body text not null,
  expires double precision not null,
  primary key (cluster, fence)
);

-- What is asked for, and what became of it. The row stays, as the record of who asked for what.
create table gate_ask (
  id text primary key,
  cluster text not null,
  asker text not null,
  key text,
  body text not null,
  asked double precision not null,
  state text not null,
  fence bigint,
  expires double precision,
  seen_down bigint not null default 0,
  answer text,
  ended double precision
);

create unique index gate_ask_key on gate_ask (cluster, asker, key);
create index gate_ask_open on gate_ask (cluster, state, asked);

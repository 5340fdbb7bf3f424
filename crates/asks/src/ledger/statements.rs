//! The statements, as both databases understand them. Columns come as texts, numbers are `$1`, and `{now}` is a time.

pub(super) const REGISTER: &str =
    "insert into gate_cluster (identity, name, version, fence, gate_fence, gate_expires)
     values ($1, $2, 0, 0, 0, 0) on conflict (identity) do update set name = $2";

pub(super) const CLUSTERS: &str = "select identity, name, case when gate_expires > {now} then gate else null end from gate_cluster order by name";

pub(super) const STANDING: &str = "select cast(version as text), cast(fence as text), cast({now} as text)
     from gate_cluster where identity = $1";

pub(super) const CLAIMS: &str =
    "select cast(fence as text), holder, body, cast(expires as text) from gate_claim
     where cluster = $1 and expires > {now} order by gate_claim.fence";

pub(super) const OPEN_ASKS: &str =
    "select id, body, cast(asked as text), state, cast(fence as text), cast(expires as text),
     cast(seen_down as text), answer, cast(ended as text) from gate_ask
     where cluster = $1 and state in ('waiting', 'granted') order by gate_ask.asked, id";

pub(super) const ASK: &str =
    "select id, body, cast(asked as text), state, cast(fence as text), cast(expires as text),
     cast(seen_down as text), answer, cast(ended as text) from gate_ask where id = $1";

pub(super) const ASK_BY_KEY: &str = "select id, body, cast(asked as text), state, cast(fence as text), cast(expires as text),
     cast(seen_down as text), answer, cast(ended as text) from gate_ask where cluster = $1 and asker = $2 and key = $3";

pub(super) const HISTORY: &str =
    "select id, body, cast(asked as text), state, cast(fence as text), cast(expires as text),
     cast(seen_down as text), answer, cast(ended as text) from gate_ask where cluster = $1
     order by gate_ask.asked desc, id limit $2";

pub(super) const PLACE: &str = "insert into gate_ask (id, cluster, asker, key, body, asked, state)
     values ($1, $2, $3, $4, $5, {now}, 'waiting') on conflict (cluster, asker, key) do nothing";

pub(super) const NEXT_VERSION: &str = "update gate_cluster set version = version + 1, fence = fence + 1
     where identity = $1 and version = $2 returning cast(fence as text)";

pub(super) const NEXT_VERSION_OF_GATE: &str = "update gate_cluster set version = version + 1, fence = fence + 1
     where identity = $1 and version = $2 and gate_fence = $3 and gate_expires > {now} returning cast(fence as text)";

pub(super) const WRITE_CLAIM: &str = "insert into gate_claim (cluster, fence, holder, body, expires)
     select identity, fence, cast($2 as text), cast($3 as text), {now} + $4 from gate_cluster where identity = $1";

pub(super) const GRANT: &str = "update gate_ask set state = 'granted', expires = {now} + $3, answer = null,
     fence = (select gate_cluster.fence from gate_cluster where identity = $2)
     where id = $1 and state = 'waiting' returning id";

pub(super) const ANSWER: &str = "update gate_ask set answer = $2 where id = $1 and state = 'waiting'";

pub(super) const SEEN_DOWN: &str = "update gate_ask set seen_down = 1 where id = $1 and state = 'granted'";

pub(super) const END: &str = "update gate_ask set state = $2, answer = $3, ended = {now}
     where id = $1 and state in ('waiting', 'granted') returning id";

pub(super) const DROP_CLAIMS_OF: &str = "delete from gate_claim where holder = $1";

pub(super) const RENEW: &str = "update gate_claim set expires = {now} + $3
     where cluster = $1 and fence = $2 and expires > {now} returning cast(fence as text)";

pub(super) const DROP_CLAIM: &str = "delete from gate_claim where cluster = $1 and fence = $2";

pub(super) const SHRINK: &str = "update gate_claim set body = $3 where cluster = $1 and fence = $2";

pub(super) const TAKE_GATE: &str =
    "update gate_cluster set gate = $2, gate_fence = gate_fence + 1, gate_expires = {now} + $3
     where identity = $1 and gate_expires <= {now} returning cast(gate_fence as text)";

pub(super) const KEEP_GATE: &str = "update gate_cluster set gate_expires = {now} + $3
     where identity = $1 and gate_fence = $2 and gate_expires > {now} returning cast(gate_fence as text)";

pub(super) const LEAVE_GATE: &str =
    "update gate_cluster set gate_expires = 0 where identity = $1 and gate_fence = $2";

pub(super) const ASK_ANEW: &str = "update gate_ask set body = $2 where id = $1 and state = 'waiting'";

pub(super) const EXTEND: &str = "update gate_ask set expires = {now} + $2
     where id = $1 and state = 'granted' and seen_down = 0 and expires > {now} returning id";

pub(super) const EXTEND_CLAIM: &str = "update gate_claim set expires = {now} + $2
     where holder = $1 and expires > {now} returning holder";

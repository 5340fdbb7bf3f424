//! What the commands come to that the configuration names: services are installed, pinned, stopped and started, the
//! schema and the rows go on.

use std::collections::BTreeSet;

use stagger_engine::hosts::Ran;

use super::{HEADS, Inner, Lab, broker, registered};

impl Lab {
    /// What a command comes to.
    pub(super) fn command(&self, inner: &mut Inner, command: &str) -> Ran {
        let words: Vec<&str> = command.split(' ').collect();
        let ok = |output: &str| Ran {
            code: 0,
            output: output.to_owned(),
        };
        match words.as_slice() {
            ["install", name, release] => {
                let emptied = inner.emptied.iter().position(|emptied| emptied == name);
                let service = inner.services.get_mut(*name).unwrap();
                (*release).clone_into(&mut service.installed);
                if let Some(at) = emptied {
                    inner.emptied.remove(at);
                    service.pin_file = None;
                    let nothing = Ran {
                        code: 0,
                        output: String::new(),
                    };
                    inner.faults.push((format!("pin {name}"), nothing));
                }
                ok("")
            }
            ["pin", name, pin] => {
                inner.services.get_mut(*name).unwrap().pin_file = Some((*pin).to_owned());
                ok("")
            }
            ["unpin", name] => {
                inner.services.get_mut(*name).unwrap().pin_file = None;
                ok("")
            }
            ["stop", name] => {
                Self::stop(inner, name);
                ok("")
            }
            ["start", name] => self.start(inner, name),
            ["ready", name] => match inner.services[*name].runs {
                Some(_) => ok(""),
                None => Ran {
                    code: 124,
                    output: "it has not served".to_owned(),
                },
            },
            ["set", backend, server, state] => {
                inner
                    .servers
                    .insert(((*backend).to_owned(), (*server).to_owned()), *state == "drain");
                let drained = inner.servers.iter().filter(|(_, drained)| **drained);
                let drained: BTreeSet<&String> = drained.map(|((_, server), _)| server).collect();
                inner.drained_at_once = inner.drained_at_once.max(drained.len());
                for backend in inner
                    .servers
                    .keys()
                    .map(|(backend, _)| backend.clone())
                    .collect::<Vec<_>>()
                {
                    let serves = |(of, server): (&(String, String), &bool)| {
                        of.0 == backend && !*server && inner.services[&of.1].runs.is_some()
                    };
                    if !inner.servers.iter().any(|(of, drained)| serves((of, drained))) {
                        inner.violations.push(format!("nobody in {backend}: {command}"));
                    }
                }
                ok("")
            }
            ["schema", release] => {
                let head = HEADS
                    .iter()
                    .find(|(known, _)| release.starts_with(known))
                    .unwrap()
                    .1;
                head.clone_into(&mut inner.schema);
                ok("upgraded")
            }
            ["check", ..] => ok("fine"),
            ["hold"] => {
                inner.held = true;
                inner.under_way = 3;
                for name in ["c1", "c2"] {
                    inner.begin_one_more(&registered(name));
                }
                ok("")
            }
            ["let-go"] => {
                inner.held = false;
                ok("")
            }
            ["migrate", count] => self.migrate(inner, count.parse().unwrap()),
            ["hook", ..] => ok("done"),
            other => panic!("{other:?}"),
        }
    }

    fn stop(inner: &mut Inner, name: &str) {
        let is_api = inner.services[name].is_api;
        if inner.services[name].runs.is_some() {
            if inner.tasks().contains_key(&registered(name)) {
                inner.violations.push(format!("{name} was stopped in a task"));
            }
            let drained = inner
                .servers
                .iter()
                .all(|((_, server), drained)| server != name || *drained);
            let quiet = inner.muted.iter().any(|muted| *muted == registered(name)) || inner.held;
            let routing = inner.routing.as_ref().filter(|_| !is_api);
            if routing.is_some_and(|routing| !broker::is_diverted(routing, &registered(name))) {
                let why = format!("{name} was stopped while calls came to it, or to nobody");
                inner.violations.push(why);
            }
            if !drained && (is_api || !inner.other_way) {
                inner
                    .violations
                    .push(format!("{name} was stopped while it got requests"));
            }
            if inner.other_way && !is_api && !quiet {
                inner
                    .violations
                    .push(format!("{name} was stopped while it was asked"));
            }
            if inner.held && inner.under_way > 0 {
                inner
                    .violations
                    .push(format!("{name} was stopped with requests under way"));
            }
            let others = inner.services.iter().filter(|(other, of)| {
                *other != name
                    && of.is_api == is_api
                    && of.runs.is_some()
                    && inner.groups.get(*other) == inner.groups.get(name)
            });
            if others.count() == 0 {
                inner.violations.push(format!("{name} was the last of its kind"));
            }
        }
        if let Some(routing) = &mut inner.routing {
            broker::leave(routing, &registered(name));
        }
        let service = inner.services.get_mut(name).unwrap();
        service.runs = None;
        service.stops += 1;
        if let Some(row) = inner.conductor_rows.get_mut(&registered(name)) {
            row.1 = false;
        }
    }

    fn start(&self, inner: &mut Inner, name: &str) -> Ran {
        let failed = |why: &str| Ran {
            code: 1,
            output: why.to_owned(),
        };
        let service = inner.services[name].clone();
        if service.runs.is_some() {
            return failed("it runs already");
        }
        let release = service.installed.clone();
        let broken = |(of, on): &(String, String)| of == name && *on == release;
        if inner.broken.iter().any(broken) {
            // It starts, and is gone a moment later.
            return Ran {
                code: 0,
                output: String::new(),
            };
        }
        if let Some(routing) = &mut inner.routing {
            broker::join(routing, &registered(name));
        }
        let place = self.table.find(&release).unwrap().place;
        let pin = match &service.pin_file {
            None => None,
            Some(pin) => match self.table.pin(place, pin) {
                Some(pin) => Some(pin),
                None => return failed("ConfigFileValueError: pin_release_version"),
            },
        };
        let head = HEADS
            .iter()
            .find(|(known, _)| release.starts_with(known))
            .unwrap();
        let schema = HEADS
            .iter()
            .position(|(_, known)| *known == inner.schema)
            .unwrap();
        let own = HEADS.iter().position(|known| known == head).unwrap();
        if schema < own {
            inner.violations.push(format!(
                "{name} on {release} was started on the schema of an older release"
            ));
        }
        let held = pin.filter(|pin| *pin < place);
        for (other, of) in &inner.services {
            let Some((others, pinned)) = &of.runs else {
                continue;
            };
            if other == name {
                continue;
            }
            let theirs = self.table.find(others).unwrap().place;
            let their_pin = pinned
                .as_ref()
                .and_then(|pin| self.table.pin(theirs, pin))
                .filter(|pin| *pin < theirs);
            if held.is_none() && theirs < place {
                inner.violations.push(format!(
                    "{name} was started without a pin beside {other} on {others}"
                ));
            }
            // What it takes from clients, and that conductor drops in silence.
            let drops = their_pin.is_some_and(|pin| pin < place);
            if service.is_api && held.is_none() && !of.is_api && drops {
                inner
                    .violations
                    .push(format!("{name} was unpinned before {other}"));
            }
        }
        let reads = self.table.readable_versions(place);
        for (table, rows) in &inner.rows {
            for version in rows.keys() {
                let version: stagger_versioned::Version = version.parse().unwrap();
                if version > reads[table.as_str()] {
                    inner
                        .violations
                        .push(format!("{name} on {release} cannot read {table} {version}"));
                }
            }
        }
        if !service.is_api {
            let row = self.table.conductor_row(place, held).unwrap().to_string();
            inner.conductor_rows.insert(registered(name), (row, true));
            // Traffic touches a row.
            let writes = self.table.writes(place, held)["nodes"].to_string();
            let nodes = inner.rows.get_mut("nodes").unwrap();
            if let Some(old) = nodes.keys().find(|version| **version != writes).cloned() {
                *nodes.get_mut(&old).unwrap() -= 1;
                nodes.retain(|_, rows| *rows > 0);
                *nodes.entry(writes).or_default() += 1;
            }
        }
        inner.muted.retain(|muted| *muted != registered(name));
        inner.services.get_mut(name).unwrap().runs = Some((release, service.pin_file));
        Ran {
            code: 0,
            output: String::new(),
        }
    }

    fn migrate(&self, inner: &mut Inner, count: u64) -> Ran {
        let newest = HEADS.iter().position(|(_, head)| *head == inner.schema).unwrap();
        let writes = self
            .table
            .writes(self.table.find(HEADS[newest].0).unwrap().place, None);
        let (mut left, mut total) = (if inner.stuck { 0 } else { count }, 0);
        for (table, rows) in &mut inner.rows {
            let to = writes[table.as_str()].to_string();
            let old: Vec<String> = rows.keys().filter(|version| **version != to).cloned().collect();
            for version in old {
                let moves = rows[&version].min(left);
                total += rows[&version];
                left -= moves;
                *rows.get_mut(&version).unwrap() -= moves;
                *rows.entry(to.clone()).or_default() += moves;
            }
            rows.retain(|_, rows| *rows > 0);
        }
        let done = if inner.stuck { 0 } else { count - left };
        let output = format!("update_to_latest_versions() migrated {done} of {total} objects.");
        // It does not look ahead.
        let code = i32::from(inner.stuck || done >= count);
        Ran { code, output }
    }
}

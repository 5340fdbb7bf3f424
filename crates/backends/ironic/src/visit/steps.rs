//! Carries out steps: what is done once for all services.

use futures::future::join_all;
use jiff::Timestamp;
use stagger_core::model::{Fact, UnitState};
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::{Ran, last_words};
use stagger_engine::template;

use crate::client::IronicClient;
use crate::commands::filled;
use crate::config::ServiceRole;
use crate::observe::release_code;
use crate::records::{Record, RecordState};
use crate::running_releases::runs;
use crate::services::statuses;
use crate::target::part;
use crate::visit::perform::{Performer, UNPIN};

/// What `ironic-status upgrade check` came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeCheck {
    /// It has nothing to say.
    Fine,
    /// It warns.
    Warned(String),
    /// It crashed as it is known to: it tells nothing.
    KnownDefect(String),
    /// It says no.
    Failed(String),
    /// Unknown.
    Unclear(String),
}

/// What a check came to. `crashes`: the words, any of them, of the crash that it is known for on this pair of releases.
pub fn parse_check(ran: &Ran, crashes: &[&str]) -> UpgradeCheck {
    let said = || last_words(&ran.output).to_owned();
    match ran.code {
        0 => UpgradeCheck::Fine,
        1 => UpgradeCheck::Warned(ran.output.clone()),
        2 => UpgradeCheck::Failed(ran.output.clone()),
        // What follows is a long question in SQL, and where to read about it.
        255 if let Some(line) = ran
            .output
            .lines()
            .find(|line| crashes.iter().any(|words| line.contains(words))) =>
        {
            UpgradeCheck::KnownDefect(line.trim().to_owned())
        }
        code => UpgradeCheck::Unclear(format!("it ended with {code}: {}", said())),
    }
}

impl Performer<'_> {
    /// One step.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) async fn step(&self, step: &str) -> Result<String, BackendError> {
        // A step has no unit whose fence a successor would have raised: it raises all, and waits for commands of
        // older holders that are at work.
        raise(self.client, self.call.fence, self.settings.cluster.hosts()).await?;
        let hooks = &self.settings.cluster.hooks;
        match step {
            part::BEFORE => self.hook(step, hooks.before.as_ref(), "").await,
            part::RAMDISK => {
                self.hook(
                    step,
                    hooks.ramdisk.as_ref(),
                    "an operator confirmed that it is done",
                )
                .await
            }
            part::CLIENTS => {
                let told = "now upgrade python-ironicclient and python-openstackclient, then the services that use \
                            Ironic, Nova first; new API versions are served from here on";
                self.hook(step, hooks.clients.as_ref(), told).await
            }
            part::AFTER => self.hook(step, hooks.after.as_ref(), "").await,
            part::CHECK => self.check().await,
            part::BACKUP => self.backup().await,
            part::SCHEMA => self.schema().await,
            part::PIN => self.pin_all().await,
            part::UNPIN => self.begin_unpin().await,
            part::VERIFY => self.conductors_are_unpinned().await,
            part::MIGRATE => self.migrate().await,
            _ => Err(BackendError::permanent(
                format!("take the step {step}"),
                "this backend has no such step",
            )),
        }
    }

    async fn tool(&self, which: &str, command: &str) -> Result<Ran, BackendError> {
        let tools = &self.settings.cluster.tools;
        let release = self.goal()?.to.as_str();
        let command = template::filled(command, &[("release", release)])?;
        let key = format!("{}-{which}", self.call.key());
        self.client
            .run(&tools.host, &key, self.call.fence, &command)
            .await
    }

    async fn mark(&self, mark: &str, detail: &str) -> Result<(), BackendError> {
        let release = &self.goal()?.to;
        self.book.mark(self.call, release, mark, detail).await
    }

    async fn hook(&self, mark: &str, command: Option<&String>, told: &str) -> Result<String, BackendError> {
        let said = match command {
            None => told.to_owned(),
            Some(command) => {
                let ran = self.tool(mark, command).await?;
                if ran.code != 0 {
                    let why = format!("it ended with {}: {}", ran.code, last_words(&ran.output));
                    return Err(BackendError::permanent(format!("run the hook `{mark}`"), why));
                }
                format!("the hook ended well: {}", last_words(&ran.output))
            }
        };
        self.mark(mark, &said).await?;
        Ok(said)
    }

    /// The tools of the new release, before the first of them is used.
    async fn install_tools(&self) -> Result<(), BackendError> {
        let Some(command) = &self.settings.cluster.tools.install else {
            return Ok(());
        };
        let ran = self.tool("install", command).await?;
        if ran.code == 0 {
            return Ok(());
        }
        let why = format!("it ended with {}: {}", ran.code, last_words(&ran.output));
        Err(BackendError::permanent("install the tools of Ironic", why))
    }

    async fn check(&self) -> Result<String, BackendError> {
        const TRIED: &str = "ask `ironic-status upgrade check`";
        let Some(command) = &self.settings.cluster.tools.check else {
            return Err(BackendError::permanent(
                TRIED,
                "there is no command `tools.check`",
            ));
        };
        self.install_tools().await?;
        let goal = self.goal()?;
        let find = |text: &str| {
            let found = self.table.find(text);
            found.map_err(|error| BackendError::permanent(TRIED, error.to_string()))
        };
        let crashes = self
            .table
            .check_crashes(find(&goal.from)?.place, find(&goal.to)?.place);
        let ran = self.tool("check", command).await?;
        let said = match parse_check(&ran, crashes) {
            UpgradeCheck::Fine => "it finds nothing".to_owned(),
            UpgradeCheck::Warned(said) => format!("it warns: {said}"),
            UpgradeCheck::KnownDefect(said) => format!(
                "unknown, known defect: on the schema of {} it crashes by reading columns of {}, and reports nothing: \
                 {said}",
                goal.from, goal.to
            ),
            UpgradeCheck::Failed(said) => {
                return Err(BackendError::permanent(TRIED, format!("it says no: {said}")));
            }
            UpgradeCheck::Unclear(why) => return Err(BackendError::permanent(TRIED, why)),
        };
        self.mark(part::CHECK, &said).await?;
        Ok(said)
    }

    async fn backup(&self) -> Result<String, BackendError> {
        const TRIED: &str = "save Ironic's database";
        let Some(command) = self.settings.cluster.tools.backup_command() else {
            return Err(BackendError::permanent(
                TRIED,
                "there is no command `tools.backup`",
            ));
        };
        // Rows that are written while it is saved are not in it.
        let begun = Timestamp::now();
        let ran = self.tool("backup", command).await?;
        if ran.code != 0 {
            let why = format!("it ended with {}: {}", ran.code, last_words(&ran.output));
            return Err(BackendError::permanent(TRIED, why));
        }
        let said = format!("{begun:.0} {}", last_words(&ran.output));
        self.mark(part::BACKUP, said.trim()).await?;
        Ok(format!("saved {}", said.trim()))
    }

    async fn schema(&self) -> Result<String, BackendError> {
        const TRIED: &str = "upgrade the schema";
        self.install_tools().await?;
        // The next step writes it, and the schema does not come back.
        self.pin_is_listed(&self.goal()?.pin).await?;
        let ran = self.tool("schema", &self.settings.cluster.tools.schema).await?;
        match ran.code {
            0 => {}
            2 => {
                let why = format!(
                    "the tool refuses the rows. Its own advice, to run the tools of the release before, does not help with \
                     rows that are newer or have no version: {}",
                    last_words(&ran.output)
                );
                return Err(
                    BackendError::permanent(TRIED, why).hint("`stagger observe` counts rows by version")
                );
            }
            code => {
                let why = format!("it ended with {code}: {}", last_words(&ran.output));
                return Err(BackendError::permanent(TRIED, why));
            }
        }
        let revision = match self.client.database().await {
            Fact::Yes(database) => database.revision,
            Fact::No(why) => return Err(BackendError::transient(TRIED, why)),
        };
        self.mark(part::SCHEMA, &revision).await?;
        Ok(format!("revision {revision}"))
    }

    /// Every start from here on is held to the old release, also one that nobody meant.
    async fn pin_all(&self) -> Result<String, BackendError> {
        const TRIED: &str = "write the pins";
        let goal = self.goal()?;
        let facts = self.collect_facts().await;
        let records = facts
            .records
            .as_result()
            .map_err(|why| BackendError::transient(TRIED, why.to_owned()))?;
        let config = &self.settings.cluster;
        for service in config.services() {
            // What it runs now is written down before its pin changes: it goes on without it until its next start.
            if !records.services.contains_key(service.name) {
                let now = runs(&service, &facts, config, self.table)
                    .map_err(|reason| BackendError::transient(TRIED, reason.detail))?;
                let record = Record {
                    release: now.release,
                    pin: now.pin.map(|(pin, _)| pin),
                    state: RecordState::Runs,
                    run: self.call.run.to_string(),
                };
                self.book.note(self.call, service.name, &record).await?;
            }
            if self.read_pin(&service).await?.as_ref() != Some(&goal.pin) {
                self.write_pin(&service, &format!("pin-{}", service.name), &goal.pin)
                    .await?;
            }
            let now = self.read_pin(&service).await?;
            if now.as_ref() != Some(&goal.pin) {
                let why = format!(
                    "{} would start with the pin {:?}",
                    service.name,
                    now.as_deref().unwrap_or("none")
                );
                return Err(BackendError::permanent(TRIED, why));
            }
        }
        Ok(format!("each service starts pinned to {}", goal.pin))
    }

    /// Where the new code can be asked which pins it lists, it is: what was planned by may have been replaced since.
    async fn pin_is_listed(&self, pin: &str) -> Result<(), BackendError> {
        let tried = || format!("ask the new code for the pin {pin}");
        let tools = &self.settings.cluster.tools;
        let code = match release_code(self.client, tools, &self.goal()?.to).await {
            None => return Ok(()),
            Some(Fact::No(why)) => return Err(BackendError::transient(tried(), why)),
            Some(Fact::Yes(code)) => code,
        };
        let listed: Vec<&str> = code.pins().collect();
        if listed.contains(&pin) {
            return Ok(());
        }
        let why = format!("it lists {}", listed.join(" "));
        Err(BackendError::permanent(tried(), why).hint("set `pin` to one that it lists"))
    }

    /// Nothing is done: whoever comes here has left a conductor behind.
    async fn conductors_are_unpinned(&self) -> Result<String, BackendError> {
        let facts = self.collect_facts().await;
        for api in self
            .settings
            .cluster
            .services()
            .filter(|service| service.role == ServiceRole::Api)
        {
            self.may_be_unpinned(&api, &facts)?;
        }
        Ok("no conductor is pinned".to_owned())
    }

    /// Behind this nothing goes back.
    async fn begin_unpin(&self) -> Result<String, BackendError> {
        let goal = self.goal()?;
        let facts = self.collect_facts().await;
        for status in statuses(&facts, &self.settings.cluster, self.table) {
            let refused = |why: String| BackendError::permanent("take pins away", why);
            match status.runs {
                Ok(runs) if runs.release == goal.to && status.state.0 == UnitState::Serving => {}
                Ok(runs) => {
                    return Err(refused(format!(
                        "{} runs {}{}",
                        status.name,
                        runs.release,
                        if status.state.0 == UnitState::Serving {
                            ""
                        } else {
                            " and does not serve"
                        }
                    )));
                }
                Err(reason) => return Err(refused(reason.detail)),
            }
        }
        self.mark(UNPIN, "begun").await?;
        Ok(format!("every service runs {}", goal.to))
    }
}

/// Raises the fence on hosts, all at once.
pub(crate) async fn raise<'a>(
    client: &dyn IronicClient,
    fence: u64,
    hosts: impl IntoIterator<Item = &'a str>,
) -> Result<(), BackendError> {
    let raising = hosts.into_iter().map(|host| client.raise_fence(host, fence));
    join_all(raising).await.into_iter().collect()
}

impl Performer<'_> {
    /// The last log lines of a service, if there is a command for them.
    pub(crate) async fn logs(&self, service: &crate::config::Service<'_>) -> Option<String> {
        let command = filled(service.commands.logs.as_ref()?, service, &[]).ok()?;
        let ran = self.client.ask(service.host, &command).await.ok()?;
        Some(ran.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_crash_is_no_refusal_and_an_unknown_one_is() {
        let ran = |code: i32, output: &str| Ran {
            code,
            output: output.to_owned(),
        };
        let crash = "(1054, \"Unknown column 'nodes.disable_power_off' in 'field list'\")";
        let known = &["Unknown column", "UndefinedColumn"][..];
        assert_eq!(
            parse_check(&ran(255, crash), known),
            UpgradeCheck::KnownDefect(crash.to_owned())
        );
        // As 29.0.6 prints it, but for the length: the last line is of no use to anybody.
        let whole = format!(
            "Traceback (most recent call last):\n  File \"x.py\", line 1, in y\npymysql.err.OperationalError: {crash}\n\
             \nThe above exception was the direct cause of the following exception:\n\
             [SQL: SELECT nodes.id\nFROM nodes]\n(Background on this error at: https://sqlalche.me/e/21/e3q8)"
        );
        assert_eq!(
            parse_check(&ran(255, &whole), known),
            UpgradeCheck::KnownDefect(format!("pymysql.err.OperationalError: {crash}"))
        );
        let postgres = "psycopg2.errors.UndefinedColumn: column nodes.disable_power_off does not exist";
        assert_eq!(
            parse_check(&ran(255, postgres), known),
            UpgradeCheck::KnownDefect(postgres.to_owned())
        );
        assert!(matches!(
            parse_check(&ran(255, crash), &[]),
            UpgradeCheck::Unclear(_)
        ));
        assert!(matches!(
            parse_check(&ran(255, "no such host"), known),
            UpgradeCheck::Unclear(_)
        ));
        assert!(matches!(
            parse_check(&ran(2, "no"), known),
            UpgradeCheck::Failed(_)
        ));
        assert!(matches!(
            parse_check(&ran(1, "old driver"), known),
            UpgradeCheck::Warned(_)
        ));
        assert_eq!(parse_check(&ran(0, ""), known), UpgradeCheck::Fine);
    }
}

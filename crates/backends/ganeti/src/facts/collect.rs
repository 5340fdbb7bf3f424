//! Collects the facts of a cluster from its RAPI.

use jiff::Timestamp;
use serde_json::{Value, json};
use stagger_engine::cluster::BackendError;

use crate::facts::{FactsError, GanetiFacts, InstanceFacts, RapiAnswers, boots, facts, instance, read};
use crate::model::GanetiCluster;
use crate::rapi::client::{HttpMethod, Rapi, RapiClientError};
use crate::rapi::job_history::JobHistory;

/// So often facts that contradict each other are read.
const READINGS: u32 = 3;

impl Rapi {
    /// All facts, now.
    ///
    /// # Errors
    /// No answer, or facts that contradict each other each time.
    pub async fn facts(&self) -> Result<GanetiFacts, BackendError> {
        self.read_whole(facts).await
    }

    /// All facts, and the cluster as planning takes it, of the same answers.
    ///
    /// # Errors
    /// As of [`Rapi::facts`].
    pub async fn observe(&self) -> Result<(GanetiFacts, GanetiCluster), BackendError> {
        self.read_whole(|at, answers| {
            let cluster = answers.cluster()?;
            Ok((facts(at, answers)?, cluster))
        })
        .await
    }

    /// The answers themselves, which fit together, without what may hold secrets; and when they were asked for.
    ///
    /// # Errors
    /// As of [`Rapi::facts`].
    pub async fn answers_to_keep(&self) -> Result<(Timestamp, RapiAnswers), BackendError> {
        let jobs = self.listed_jobs().await;
        self.read_whole(|at, answers| {
            facts(at, answers.clone())?;
            Ok((at, answers))
        })
        .await
        .map(|(at, answers)| {
            let answers = RapiAnswers { jobs, ..answers };
            (at, answers.without_secrets())
        })
    }

    /// How long moves took, by the jobs that the queue has. Nothing is known where it does not say: an estimate is no reason not to
    /// plan.
    pub async fn job_history(&self) -> JobHistory {
        JobHistory::of(&self.listed_jobs().await)
    }

    async fn listed_jobs(&self) -> Value {
        self.get("/2/jobs?bulk=1").await.unwrap_or_else(|error| {
            tracing::debug!(%error, "how long things take is unknown");
            Value::Null
        })
    }

    async fn read_whole<T>(
        &self,
        make: impl Fn(Timestamp, RapiAnswers) -> Result<T, FactsError>,
    ) -> Result<T, BackendError> {
        const TRIED: &str = "observe the cluster";
        let mut readings = 0;
        loop {
            readings += 1;
            let at = Timestamp::now();
            let answers = self.answers().await.map_err(|error| error.of(TRIED, false))?;
            match make(at, answers) {
                Err(FactsError::Contradict(why)) if readings < READINGS => {
                    tracing::debug!(%why, "read anew");
                    tokio::time::sleep(self.pace().again).await;
                }
                other => return other.map_err(|error| BackendError::transient(TRIED, error.to_string())),
            }
        }
    }

    /// All answers. The questions are asked side by side, since Ganeti asks each node for some of them.
    async fn answers(&self) -> Result<RapiAnswers, RapiClientError> {
        // First alone: it finds the master.
        let info = self.get("/2/info").await?;
        let question = json!({ "fields": ["name", "bootid"] });
        let (groups, nodes, boots, instances) = futures::try_join!(
            self.get("/2/groups?bulk=1"),
            self.get("/2/nodes?bulk=1"),
            self.read(HttpMethod::Put, "/2/query/node", Some(&question)),
            self.get("/2/instances?bulk=1"),
        )?;
        Ok(RapiAnswers {
            info,
            groups,
            nodes,
            boots,
            instances,
            jobs: Value::Null,
        })
    }

    /// The boot id of one node; `None`: it does not answer.
    ///
    /// # Errors
    /// RAPI does not answer, or there is no such node.
    pub async fn boot(&self, node: &str) -> Result<Option<String>, BackendError> {
        let tried = format!("ask for the boot id of {node}");
        let question = json!({ "fields": ["name", "bootid"], "qfilter": ["=", "name", node] });
        let answer = self
            .read(HttpMethod::Put, "/2/query/node", Some(&question))
            .await
            .map_err(|error| error.of(&tried, false))?;
        let boots = boots(answer).map_err(|error| BackendError::transient(&tried, error.to_string()))?;
        boots
            .get(node)
            .cloned()
            .ok_or_else(|| BackendError::permanent(tried, "there is no such node"))
    }

    /// One instance as it is now; `None`: there is none.
    ///
    /// # Errors
    /// RAPI does not answer.
    pub async fn instance(&self, name: &str) -> Result<Option<InstanceFacts>, BackendError> {
        let tried = format!("look at instance {name}");
        match self.get(&format!("/2/instances/{name}")).await {
            Ok(answer) => read("/2/instances/NAME", answer)
                .and_then(instance)
                .map(Some)
                .map_err(|error| BackendError::transient(tried, error.to_string())),
            Err(RapiClientError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error.of(tried, false)),
        }
    }
}

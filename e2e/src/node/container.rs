//! One container: a process, started again as its pod's policy says, with probes beside it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::fields::field;
use super::keys::Found;
use super::mounts::{Mount, OwnRoot, mounts, needs_own_root, read_only_root};
use super::network::OwnNetwork;
use super::place::Access;
use super::pod_logs;
use super::probe::{self, Numbers};
use super::process::{Inside, Root};
use super::status::{ContainerState, time};
use super::user::User;
use super::variables::{self, variables, words};
use super::volumes::Volumes;
use super::{API_SERVER, Broken, Image, Shared};
use crate::kubernetes::GATEWAY;

/// The first pause of a crash loop. The kubelet begins with 10 s; a test has less time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest one. The kubelet's is 5 minutes.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// One that ran for so long begins anew with the first pause.
const RAN_LONG: Duration = Duration::from_mins(1);
/// Between two looks whether what a container waits for is there.
const LOOK: Duration = Duration::from_secs(1);
/// So much of a termination message is told, as by the kubelet.
const MESSAGE: usize = 4096;

/// One container of one pod.
pub(super) struct Run {
    pub(super) spec: Container,
    /// `Always`, `OnFailure` or `Never`.
    pub(super) policy: String,
    /// Where its logs and messages are.
    pub(super) folder: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) pod: Pod,
    /// Those of the pod.
    pub(super) volumes: Arc<Volumes>,
    /// The same.
    pub(super) network: Arc<OwnNetwork>,
    /// When it is to end, with how long it may take for it.
    pub(super) stop: watch::Receiver<Option<Duration>>,
    pub(super) tell: mpsc::UnboundedSender<ContainerState>,
}

/// Why a container cannot start yet.
struct Wait {
    reason: &'static str,
    message: String,
}

/// Why a process is to end.
enum Verdict {
    Ended(std::io::Result<ExitStatus>),
    Unhealthy,
    Stopped(Duration),
}

impl Run {
    /// Runs it until it has ended for good or is stopped.
    pub(super) async fn until_it_ends(mut self) {
        let mut state = ContainerState::waiting(&self.spec, "ContainerCreating");
        let mut pause = FIRST_PAUSE;
        let mut stop = self.stop.clone();
        loop {
            let Some((image, inside)) = self.wait_for_all(&mut state).await else {
                state.state = if state.last["terminated"].is_object() {
                    state.last.clone()
                } else {
                    terminated(Timestamp::now(), 137, "ContainerStatusUnknown", "")
                };
                self.say(&state);
                return;
            };
            let began = Instant::now();
            let (ended, stopped) = self.once(&image, inside, &mut state).await;
            let well = ended["terminated"]["exitCode"] == 0;
            state.ready = false;
            state.started = false;
            let again = match self.policy.as_str() {
                "Always" => true,
                "OnFailure" => !well,
                _ => false,
            };
            if stopped || !again {
                state.state = ended;
                self.say(&state);
                return;
            }
            if began.elapsed() > RAN_LONG {
                pause = FIRST_PAUSE;
            }
            state.last = ended;
            state.state = json!({ "waiting": {
                "reason": "CrashLoopBackOff",
                "message": format!("back-off {}s restarting failed container={}", pause.as_secs(), state.name),
            } });
            self.say(&state);
            tokio::select! {
                () = sleep(pause) => {}
                _ = told_to_stop(&mut stop) => {
                    state.state = state.last.clone();
                    self.say(&state);
                    return;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            state.restarts += 1;
        }
    }

    fn say(&self, state: &ContainerState) {
        self.tell.send(state.clone()).ok();
    }

    /// Waits until it can start, and tells why it cannot yet; `None`: it was stopped meanwhile.
    async fn wait_for_all(&self, state: &mut ContainerState) -> Option<(Image, Inside)> {
        let mut stop = self.stop.clone();
        loop {
            let wait = tokio::select! {
                _ = told_to_stop(&mut stop) => return None,
                prepared = self.prepare() => match prepared {
                    Ok(prepared) => return Some(prepared),
                    Err(wait) => json!({ "waiting": { "reason": wait.reason, "message": wait.message } }),
                },
            };
            if state.state != wait {
                state.state = wait;
                self.say(state);
            }
            tokio::select! {
                _ = told_to_stop(&mut stop) => return None,
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Its image, and all that its process is to have and to see.
    async fn prepare(&self) -> Result<(Image, Inside), Wait> {
        let name = self.spec.image.as_deref().unwrap_or_default();
        let image = self.shared.settings.images.get(name).ok_or_else(|| Wait {
            reason: "ErrImagePull",
            message: format!("there is no image {name}"),
        })?;
        let creating = |message| Wait {
            reason: "ContainerCreating",
            message,
        };
        let configuring = |message| Wait {
            reason: "CreateContainerConfigError",
            message,
        };
        let places = self.volumes.places(&self.shared, &self.pod).await;
        let places = places.map_err(creating)?;
        let network = self.network.target().await.map_err(creating)?;
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = Found::ask(&self.shared.client, namespace, variables::wanted(&self.spec)).await;
        let mut env = image.env.clone();
        env.extend(self.shared.service.clone());
        if network.is_some() {
            env.insert(API_SERVER.to_owned(), GATEWAY.to_string());
            env.insert(
                "HOSTNAME".to_owned(),
                self.pod.metadata.name.clone().unwrap_or_default(),
            );
        }
        let env = found.and_then(|found| variables(&self.spec, &self.pod, &found, env));
        let env = env.map_err(configuring)?;
        let own_files = !image.layers.is_empty() || self.shared.own_devices(&self.pod);
        let root = if own_files || needs_own_root(&self.spec) {
            let mut mounts = mounts(&self.spec, places, &env).map_err(configuring)?;
            if let Some(path) = self.message_path() {
                mounts.push(Mount {
                    source: self.folder.join("message"),
                    target: path.to_owned(),
                    access: Access::Write,
                });
            }
            let settings = &self.shared.settings.folder;
            Root::Own(OwnRoot {
                image: image.root.clone().unwrap_or_else(|| PathBuf::from("/")),
                layers: image.layers.clone(),
                devices: self.shared.devices(&self.pod),
                own: self.folder.clone(),
                cluster: settings.parent().unwrap_or(settings).to_owned(),
                access: match read_only_root(&self.spec) {
                    Some(true) => Access::Read,
                    Some(false) | None => Access::Write,
                },
                mounts,
            })
        } else {
            image.root.clone().map_or(Root::Machine, Root::Image)
        };
        let address = field(&self.pod, "status.podIP").map_err(configuring)?;
        let user = User::of(&self.pod, &self.spec, image);
        let inside = Inside {
            root,
            env,
            user,
            network,
            address,
        };
        Ok((image.clone(), inside))
    }

    /// Where it leaves its last words, if it has a place of its own for them: the usual one,
    /// `/dev/termination-log`, would be shared by all.
    fn message_path(&self) -> Option<&str> {
        let path = self.spec.termination_message_path.as_deref()?;
        (path.starts_with('/') && path != "/dev/termination-log").then_some(path)
    }

    /// Where these words are then.
    fn message(&self, inside: &Inside) -> Option<PathBuf> {
        let path = self.message_path()?;
        Some(match &inside.root {
            Root::Machine => PathBuf::from(path),
            Root::Image(root) => root.join(path.trim_start_matches('/')),
            Root::Own(_) => self.folder.join("message"),
        })
    }

    /// One process, from start to end: how it ended, and whether it was stopped for good.
    async fn once(&mut self, image: &Image, inside: Inside, state: &mut ContainerState) -> (Value, bool) {
        let began = Timestamp::now();
        fs::create_dir_all(&self.folder).ok();
        let message = self.message(&inside);
        if let Some(message) = &message {
            fs::remove_file(message).ok();
            if matches!(inside.root, Root::Own(_)) {
                fs::write(message, "").ok();
            }
        }
        let path = self.folder.join(format!("{}.log", state.restarts));
        let log = File::create(&path).ok();
        let hosts = self.shared.hosts();
        pod_logs::show(&hosts, &self.pod, &self.spec.name, state.restarts, &path).ok();
        let words = words(&self.spec, &image.entrypoint, &inside.env);
        let name = words.first().map(String::as_str).unwrap_or_default();
        let broken = image.broken.get(name.rsplit('/').next().unwrap_or(name)).copied();
        if words.is_empty() || broken == Some(Broken::AtOnce) {
            return (terminated(began, 1, "Error", "made to fail at its start"), false);
        }
        let mut child = match inside.first(&words, log.as_ref()).spawn() {
            Ok(child) => child,
            Err(error) => return (terminated(began, 128, "StartError", &error.to_string()), false),
        };
        state.state = json!({ "running": { "startedAt": time(began) } });
        state.started = self.spec.startup_probe.is_none();
        state.ready = state.started && self.spec.readiness_probe.is_none();
        self.say(state);
        let verdict = self.watch(&mut child, &inside, broken, state).await;
        let (status, stopped) = match verdict {
            Verdict::Ended(status) => (status, false),
            Verdict::Unhealthy => (end(&mut child, Duration::from_secs(30)).await, false),
            Verdict::Stopped(grace) => (end(&mut child, grace).await, true),
        };
        let said = message.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said[..said.len().min(MESSAGE)]).into_owned();
        let code = code(&status);
        let reason = if code == 0 { "Completed" } else { "Error" };
        (terminated(began, code, reason, &said), stopped)
    }

    /// Watches a process until it ends, has to, or is not healthy.
    async fn watch(
        &mut self,
        child: &mut Child,
        inside: &Inside,
        broken: Option<Broken>,
        state: &mut ContainerState,
    ) -> Verdict {
        let (found, mut finding) = mpsc::unbounded_channel();
        let probes = [
            (Asks::Startup, self.spec.startup_probe.clone()),
            (Asks::Liveness, self.spec.liveness_probe.clone()),
            (Asks::Readiness, self.spec.readiness_probe.clone()),
        ];
        let (tell_started, started) = watch::channel(state.started);
        let mut asking = tokio::task::JoinSet::new();
        let first = child.id().unwrap_or_default();
        for (asks, probe) in probes {
            if let Some(probe) = probe {
                asking.spawn(keep_asking(
                    asks,
                    probe,
                    self.spec.clone(),
                    inside.clone(),
                    first,
                    started.clone(),
                    found.clone(),
                ));
            }
        }
        let crash = match broken {
            Some(Broken::After(seconds)) => Duration::from_secs(seconds),
            Some(Broken::AtOnce) | None => Duration::MAX,
        };
        let crash = sleep(crash.min(Duration::from_secs(1 << 30)));
        tokio::pin!(crash);
        let mut stop = self.stop.clone();
        let mut crashed = false;
        loop {
            tokio::select! {
                status = child.wait() => return Verdict::Ended(status),
                () = &mut crash, if !crashed => {
                    crashed = true;
                    child.start_kill().ok();
                }
                grace = told_to_stop(&mut stop) => return Verdict::Stopped(grace),
                Some((asks, well)) = finding.recv() => {
                    match (asks, well) {
                        (Asks::Startup, true) => {
                            state.started = true;
                            state.ready = self.spec.readiness_probe.is_none();
                            tell_started.send_replace(true);
                        }
                        (Asks::Startup | Asks::Liveness, false) => return Verdict::Unhealthy,
                        (Asks::Readiness, well) if state.ready != well => state.ready = well,
                        (Asks::Readiness, _) | (Asks::Liveness, true) => continue,
                    }
                    self.say(state);
                }
            }
        }
    }
}

/// Waits until the pod is to end; gives how long that may take.
async fn told_to_stop(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        Err(_) => Duration::ZERO,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Startup,
    Liveness,
    Readiness,
}

/// Asks a probe's question again and again, and tells when its thresholds are passed.
async fn keep_asking(
    asks: Asks,
    probe: Probe,
    container: Container,
    inside: Inside,
    first: u32,
    mut started: watch::Receiver<bool>,
    found: mpsc::UnboundedSender<(Asks, bool)>,
) {
    let numbers = Numbers::of(&probe);
    if asks != Asks::Startup && started.wait_for(|started| *started).await.is_err() {
        return;
    }
    sleep(numbers.delay).await;
    let (mut good, mut bad) = (0, 0);
    loop {
        if probe::ask(&probe, &container, &inside, first, numbers.limit).await {
            (good, bad) = (good + 1, 0);
        } else {
            (good, bad) = (0, bad + 1);
        }
        let told = if good >= numbers.successes {
            Some(true)
        } else if bad >= numbers.failures {
            Some(false)
        } else {
            None
        };
        if let Some(well) = told
            && (found.send((asks, well)).is_err() || (asks == Asks::Startup && well))
        {
            return;
        }
        sleep(numbers.period).await;
    }
}

/// SIGTERM, and after the grace period SIGKILL.
async fn end(child: &mut Child, grace: Duration) -> std::io::Result<ExitStatus> {
    if let Some(pid) = child.id()
        && !grace.is_zero()
    {
        // By the shell's own `kill`, which is in every system.
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill -TERM \"$1\"", "kill", &pid.to_string()]);
        kill.status().await.ok();
        if let Ok(status) = tokio::time::timeout(grace, child.wait()).await {
            return status;
        }
    }
    child.start_kill().ok();
    child.wait().await
}

/// An exit code as the kubelet tells it: 128 and the signal for one that a signal ended.
fn code(status: &std::io::Result<ExitStatus>) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => 255,
    }
}

fn terminated(began: Timestamp, code: i32, reason: &str, message: &str) -> Value {
    json!({ "terminated": {
        "exitCode": code, "reason": reason, "message": message,
        "startedAt": time(began), "finishedAt": time(Timestamp::now()),
    } })
}

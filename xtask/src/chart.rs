//! The Helm chart, made from the kustomize base: the same objects, with values where people differ.

use anyhow::{Context as _, Result, ensure};

use crate::report::root;

/// The base.
const BASE: &str = "deploy/operator";
/// The chart.
const CHART: &str = "deploy/helm/stagger";
/// Its templates, of which it has no others.
pub(crate) const TEMPLATES: &str = "deploy/helm/stagger/templates";
/// The files of the base that become templates.
const FILES: [&str; 6] = [
    "rbac.yaml",
    "rbac-namespace.yaml",
    "deployment.yaml",
    "budget.yaml",
    "webhook.yaml",
    "deletion.yaml",
];
/// The rights for new OSDs, which become a template of that name.
const PROVISIONING: (&str, &str) = ("deploy/provisioning/rbac.yaml", "provisioning.yaml");
/// The release of the program, which is that of the chart.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How the base asks for its own namespace.
const OWN_NAMESPACE: &str = "            - --watch-namespace=$(NAMESPACE)\n";
/// The last of the operator's words.
const LAST_ARGUMENT: &str = "            - --gates=/etc/stagger/gates/gates.toml\n";
/// How the chart does, where no others are named.
const NAMESPACES: &str =
    "{{ if .Values.watchNamespaces }}{{ join \",\" .Values.watchNamespaces }}{{ else }}$(NAMESPACE){{ end }}";
/// Each namespace that is watched.
const EACH_NAMESPACE: &str =
    "{{- range $namespace := default (list .Release.Namespace) .Values.watchNamespaces }}\n---\n";
const END: &str = "{{- end }}\n";
/// Where and how the operator's pods run, as people say it of every chart.
const PLACED: &str = "      {{- range $name := list \"imagePullSecrets\" \"nodeSelector\" \"tolerations\" \"affinity\" \"priorityClassName\" }}\n      \
                      {{- with index $.Values $name }}\n      {{ $name }}: {{ toJson . }}\n      {{- end }}\n      {{- end }}\n";
/// What stands before it.
const ACCOUNT: &str = "      serviceAccountName: stagger-operator\n";
/// Where the base listens, with its webhook.
const LISTEN: &str = "            - --webhook=0.0.0.0:9443\n";
/// Where the chart does; what the program listens at by itself is not said.
const LISTENS: &str = "            - --webhook={{ .Values.listen }}:9443\n";
const LISTENS_ELSEWHERE: &str = "            {{- if ne .Values.listen \"0.0.0.0\" }}\n            \
                                 - --metrics={{ .Values.listen }}:8080\n            {{- end }}\n";
/// As whom the pods run, where the cluster does not choose.
const IDENTITY: &str = "        runAsUser: 65532\n        runAsGroup: 65532\n        fsGroup: 65532\n";
const UNLESS_OPENSHIFT: &str = "        {{- if not .Values.openshift }}\n";
const END_OF_IDENTITY: &str = "        {{- end }}\n";
/// With what the accounts of pods that the operator makes fetch its image.
const SECRETS: &str = "{{- with .Values.imagePullSecrets }}\nimagePullSecrets: {{ toJson . }}\n{{- end }}\n";
/// The right to see whether Rook's operator runs, where that is in a namespace of its own.
const LOOK_FOR_ROOK: &str = "\
{{- with .Values.rookOperatorNamespace }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: stagger-rook-operator
  namespace: {{ . }}
rules:
  - apiGroups: [apps]
    resources: [deployments]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: stagger-rook-operator
  namespace: {{ . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: stagger-rook-operator
subjects:
  - kind: ServiceAccount
    name: stagger-operator
    namespace: {{ $.Release.Namespace }}
{{- end }}
";
/// Asked before the release is taken away: an operator that is gone gives nothing back. `PLACED` and `IDENTITY` are put in.
const MAY_BE_UNINSTALLED: &str = "\
# Only a running operator clears what is held: the release stays while a CephMaintenance may hold budgets, noout or labels. The log of this
# Job says which; `helm uninstall --no-hooks` does not ask.
apiVersion: batch/v1
kind: Job
metadata:
  name: stagger-may-be-uninstalled
  namespace: {{ .Release.Namespace }}
  annotations:
    helm.sh/hook: pre-delete
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 120
  template:
    metadata:
      labels:
        app: stagger-may-be-uninstalled
    spec:
      serviceAccountName: stagger-operator
PLACED      restartPolicy: Never
      securityContext:
        runAsNonRoot: true
IDENTITY        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: may-be-uninstalled
          image: {{ .Values.image }}
          args:
            - operator
            - --may-be-uninstalled
            - --watch-namespace=NAMESPACES
          env:
            - name: NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
";
/// Only where new OSDs are wanted.
const IF_PROVISIONING: &str = "{{- if .Values.provisioning }}\n";

/// All files of the chart, by their place in the repository.
pub(crate) fn pages(definitions: &str) -> Result<Vec<(String, String)>> {
    let mut pages = vec![
        (format!("{CHART}/Chart.yaml"), about()),
        (format!("{CHART}/crds/crds.yaml"), definitions.to_owned()),
    ];
    for file in FILES {
        let path = root().join(BASE).join(file);
        let base = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let template = replaced(
            &base,
            "namespace: rook-ceph\n",
            "namespace: {{ .Release.Namespace }}\n",
        )?;
        if file == "rbac-namespace.yaml" {
            let own = replaced(
                &base,
                "\n  namespace: rook-ceph\n",
                "\n  namespace: {{ $namespace }}\n",
            )?;
            let account = replaced(
                &own,
                "\n    namespace: rook-ceph\n",
                "\n    namespace: {{ $.Release.Namespace }}\n",
            )?;
            pages.push((
                format!("{TEMPLATES}/{file}"),
                format!("{EACH_NAMESPACE}{account}{END}"),
            ));
            continue;
        }
        if file != "deployment.yaml" {
            pages.push((format!("{TEMPLATES}/{file}"), template));
            continue;
        }
        let image = line(&base, "          image: ")?;
        let replicas = line(&base, "  replicas: ")?;
        let resources = block(&base, "          resources:\n")?;
        let template = replaced(
            &template,
            &format!("image: {image}\n"),
            "image: {{ .Values.image }}\n",
        )?;
        let template = replaced(
            &template,
            &format!("replicas: {replicas}\n"),
            "replicas: {{ .Values.replicas }}\n",
        )?;
        let template = replaced(
            &template,
            &format!("resources:\n{resources}"),
            "resources: {{ toJson .Values.resources }}\n",
        )?;
        let template = replaced(
            &template,
            OWN_NAMESPACE,
            &format!("            - --watch-namespace={NAMESPACES}\n"),
        )?;
        // Behind all others: what is given once more stands for what was given before.
        let extra = "            {{- range .Values.extraArgs }}\n            - {{ toJson . }}\n            {{- end }}\n";
        let template = replaced(&template, LAST_ARGUMENT, &format!("{LAST_ARGUMENT}{extra}"))?;
        let template = replaced(&template, ACCOUNT, &format!("{ACCOUNT}{PLACED}"))?;
        let template = replaced(&template, LISTEN, &format!("{LISTENS_ELSEWHERE}{LISTENS}"))?;
        let template = replaced(&template, IDENTITY, &identity())?;
        pages.push((format!("{TEMPLATES}/{file}"), template));
        pages.push((
            format!("{TEMPLATES}/rook-operator.yaml"),
            LOOK_FOR_ROOK.to_owned(),
        ));
        pages.push((
            format!("{CHART}/values.yaml"),
            values(image, replicas, &resources),
        ));
    }
    pages.push((format!("{TEMPLATES}/uninstall.yaml"), uninstall()));
    let (path, page) = PROVISIONING;
    let path = root().join(path);
    let rights = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut rights = replaced(
        &rights,
        "namespace: rook-ceph\n",
        "namespace: {{ .Release.Namespace }}\n",
    )?;
    for account in ["stagger-agent", "stagger-osd-prepare"] {
        let whole = format!(
            "kind: ServiceAccount\nmetadata:\n  name: {account}\n  namespace: {{{{ .Release.Namespace }}}}\n"
        );
        rights = replaced(&rights, &whole, &format!("{whole}{SECRETS}"))?;
    }
    pages.push((
        format!("{TEMPLATES}/{page}"),
        format!("{IF_PROVISIONING}{rights}{END}"),
    ));
    Ok(pages)
}

fn identity() -> String {
    format!("{UNLESS_OPENSHIFT}{IDENTITY}{END_OF_IDENTITY}")
}

fn uninstall() -> String {
    MAY_BE_UNINSTALLED
        .replace("PLACED", PLACED)
        .replace("IDENTITY", &identity())
        .replace("NAMESPACES", NAMESPACES)
}

fn about() -> String {
    format!(
        "# Made by `cargo xtask generate` from {BASE}.\n\
         apiVersion: v2\n\
         name: stagger\n\
         description: Rolling upgrades of Rook-managed Ceph clusters, and guarded node drains.\n\
         type: application\n\
         version: {VERSION}\n\
         appVersion: \"{VERSION}\"\n"
    )
}

fn values(image: &str, replicas: &str, resources: &str) -> String {
    let resources: String = resources
        .split_inclusive('\n')
        .map(|line| line.strip_prefix("          ").unwrap_or(line))
        .collect();
    format!(
        "# Made by `cargo xtask generate` from {BASE}.\n\n\
         # Built from deploy/Containerfile, with the Ceph whose programs ask the clusters.\n\
         image: {image}\n\
         # One leads; the others are on standby.\n\
         replicas: {replicas}\n\
         # The namespaces whose clusters are seen to, each with rights of its own; none: that of the release.\n\
         # One install serves them all. A second one in the same Kubernetes cluster is not supported: names of cluster-wide objects are fixed.\n\
         watchNamespaces: []\n\
         # The namespace of Rook's operator, if that is none of these: there stagger may look whether it runs.\n\
         rookOperatorNamespace: \"\"\n\
         # The rights for new OSDs, for clusters that no Rook looks after, in the namespace of the release alone.\n\
         provisioning: false\n\
         # More words for `stagger operator`, which stand for those of the chart: --webhook=off. docs/reference/commands.md lists them.\n\
         extraArgs: []\n\
         # Where metrics, probes and the webhook are answered; \"[::]\" where pods have IPv6 addresses only.\n\
         listen: \"0.0.0.0\"\n\
         # Leaves user and groups of its pods to the cluster, as OpenShift wants it.\n\
         openshift: false\n\
         # Where and how its pods run. The secrets are also those of agents and of Jobs that prepare devices.\n\
         imagePullSecrets: []\n\
         nodeSelector: {{}}\n\
         tolerations: []\n\
         affinity: {{}}\n\
         priorityClassName: \"\"\n\
         resources:\n{resources}"
    )
}

/// The text with `from` replaced; it has to be there.
fn replaced(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(
        text.contains(from),
        "the base has no {from:?} any more: see {}",
        file!()
    );
    Ok(text.replace(from, to))
}

/// What stands behind the first line that begins so.
fn line<'a>(text: &'a str, begins: &str) -> Result<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(begins))
        .with_context(|| format!("the base has no line {begins:?}"))
}

/// The lines below a line that are indented further.
fn block(text: &str, head: &str) -> Result<String> {
    let (_, below) = text
        .split_once(head)
        .with_context(|| format!("the base has no {head:?}"))?;
    let indent = head.len() - head.trim_start().len();
    let deeper = |line: &&str| line.len() - line.trim_start().len() > indent;
    Ok(below.split_inclusive('\n').take_while(deeper).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn parsed(text: &str) -> Vec<Value> {
        text.split("\n---\n")
            .map(|document| {
                serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
            })
            .collect()
    }

    fn base() -> Vec<Value> {
        FILES
            .iter()
            .flat_map(|file| parsed(&read(&format!("{BASE}/{file}"))))
            .chain(parsed(&read(PROVISIONING.0)))
            .collect()
    }

    /// The operator's own object of that kind.
    fn one(kind: &str) -> Value {
        let mut found: Vec<_> = base()
            .into_iter()
            .filter(|object| object["kind"] == kind && object["metadata"]["name"] == "stagger-operator")
            .collect();
        assert_eq!(found.len(), 1, "{kind}");
        found.remove(0)
    }

    #[test]
    fn every_role_that_is_bound_is_there_and_is_bound_to_an_account_that_is() {
        let all = base();
        let there = |kind: &Value, name: &Value| {
            all.iter()
                .any(|one| one["kind"] == *kind && one["metadata"]["name"] == *name)
        };
        let bindings = all.iter().filter(|one| {
            one["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("RoleBinding"))
        });
        let mut count = 0;
        for binding in bindings {
            let (role, subject) = (&binding["roleRef"], &binding["subjects"][0]);
            assert!(there(&role["kind"], &role["name"]), "{binding}");
            assert!(there(&subject["kind"], &subject["name"]), "{binding}");
            count += 1;
        }
        assert_eq!(count, 6);
    }

    /// What Helm makes of a template: as much of it as the templates say.
    fn rendered(template: &str, values: &Value) -> String {
        assert_eq!(values["openshift"], json!(false));
        let mut text = template
            .replace(NAMESPACES, "$(NAMESPACE)")
            .replace(
                &format!("{UNLESS_OPENSHIFT}{IDENTITY}{END_OF_IDENTITY}"),
                IDENTITY,
            )
            .replace(LISTENS_ELSEWHERE, "")
            .replace(SECRETS, "")
            .replace(PLACED, "");
        for whole in [EACH_NAMESPACE, IF_PROVISIONING] {
            let inner = text.strip_prefix(whole).and_then(|rest| rest.strip_suffix(END));
            if let Some(inner) = inner {
                text = inner.to_owned();
            }
        }
        for namespace in [
            "{{ .Release.Namespace }}",
            "{{ $.Release.Namespace }}",
            "{{ $namespace }}",
        ] {
            text = text.replace(namespace, "rook-ceph");
        }
        while let Some((before, rest)) = text.split_once("\n            {{- range .Values.") {
            let (name, rest) = rest.split_once(" }}").unwrap();
            assert_eq!(values[name], json!([]), "the default of {name}");
            let (_, after) = rest.split_once("{{- end }}").unwrap();
            text = format!("{before}{after}");
        }
        for (name, value) in values.as_object().unwrap() {
            let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text = text.replace(&format!("{{{{ .Values.{name} }}}}"), &plain);
            text = text.replace(&format!("{{{{ toJson .Values.{name} }}}}"), &value.to_string());
        }
        assert!(!text.contains("{{"), "{text}");
        text
    }

    #[test]
    fn the_chart_with_its_defaults_is_the_base() {
        let pages = pages("").unwrap();
        let page = |path: &str| {
            let found = pages.iter().find(|(name, _)| name == path);
            found.map_or_else(|| panic!("{path}"), |(_, text)| text.clone())
        };
        let values = parsed(&page(&format!("{CHART}/values.yaml"))).remove(0);
        let names: BTreeSet<_> = values.as_object().unwrap().keys().map(String::as_str).collect();
        let known = [
            "image",
            "replicas",
            "watchNamespaces",
            "rookOperatorNamespace",
            "provisioning",
            "extraArgs",
            "listen",
            "openshift",
            "imagePullSecrets",
            "nodeSelector",
            "tolerations",
            "affinity",
            "priorityClassName",
            "resources",
        ];
        assert_eq!(names, BTreeSet::from(known));
        let chart: Vec<Value> = FILES
            .iter()
            .chain([&PROVISIONING.1])
            .flat_map(|file| parsed(&rendered(&page(&format!("{TEMPLATES}/{file}")), &values)))
            .collect();
        assert_eq!(chart, base());
        // Each value has its place in a template.
        for name in names {
            let used = pages
                .iter()
                .any(|(_, text)| text.contains(&format!(".Values.{name} ")));
            let is_placed = PLACED.contains(&format!("{name:?}"));
            assert!(used || is_placed, "{name} changes nothing");
        }
        assert_eq!(
            parsed(&page(&format!("{CHART}/Chart.yaml"))).remove(0)["version"],
            VERSION
        );
    }

    #[test]
    fn the_right_to_look_for_rook_is_the_same_in_both() {
        let chart = LOOK_FOR_ROOK.strip_prefix("{{- with .Values.rookOperatorNamespace }}\n");
        let chart = chart.and_then(|rest| rest.strip_suffix(END)).unwrap();
        let chart = chart
            .replace("{{ . }}", "rook")
            .replace("{{ $.Release.Namespace }}", "rook-ceph");
        assert_eq!(parsed(&chart), parsed(&read("deploy/rook-operator/rbac.yaml")));
    }

    #[test]
    fn the_base_lists_every_file_once() {
        let listed = |path: &str| parsed(&read(path)).remove(0)["resources"].clone();
        assert_eq!(listed(&format!("{BASE}/kustomization.yaml")), json!(FILES));
        assert_eq!(
            listed("deploy/kustomization.yaml"),
            json!(["crds.yaml", "operator"])
        );
        assert_eq!(
            listed("deploy/provisioning/kustomization.yaml"),
            json!(["rbac.yaml"])
        );
        assert_eq!(
            listed("deploy/rook-operator/kustomization.yaml"),
            json!(["rbac.yaml"])
        );
        let there: BTreeSet<String> = fs::read_dir(root().join(BASE))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "kustomization.yaml")
            .collect();
        assert_eq!(there, FILES.iter().map(|file| (*file).to_owned()).collect());
    }

    #[test]
    fn the_operator_is_called_as_it_can_be() {
        let help = read("docs/reference/commands.md");
        let (_, help) = help.split_once("## `stagger operator`").unwrap();
        let help = help.split("\n## ").next().unwrap();
        let pod = &one("Deployment")["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array().unwrap();
        assert_eq!(args[0], "operator");
        for arg in &args[1..] {
            let flag = arg.as_str().unwrap().split('=').next().unwrap();
            assert!(
                help.contains(&format!(" {flag} <")),
                "`stagger operator` has no {flag}"
            );
        }
        let state = args.iter().find_map(|arg| arg.as_str()?.strip_prefix("--state="));
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().any(|mount| mount["mountPath"] == *state.unwrap()));
        for mount in mounts {
            let volumes = pod["volumes"].as_array().unwrap();
            assert!(
                volumes.iter().any(|volume| volume["name"] == mount["name"]),
                "{mount}"
            );
        }
    }

    #[test]
    fn accounts_labels_and_ports_agree() {
        let account = one("ServiceAccount")["metadata"].clone();
        let deployment = one("Deployment");
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["spec"]["serviceAccountName"], account["name"]);
        for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
            let binding = one(binding);
            assert_eq!(binding["roleRef"]["kind"], role);
            assert_eq!(binding["roleRef"]["name"], one(role)["metadata"]["name"]);
            assert_eq!(binding["subjects"][0]["name"], account["name"]);
            assert_eq!(binding["subjects"][0]["namespace"], account["namespace"]);
        }
        let selector = &deployment["spec"]["selector"];
        assert_eq!(*selector, one("PodDisruptionBudget")["spec"]["selector"]);
        assert_eq!(
            *selector,
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]
        );
        assert_eq!(selector["matchLabels"]["app"], pod["metadata"]["labels"]["app"]);
        let container = &pod["spec"]["containers"][0];
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"]);
        }
    }

    #[test]
    fn releases_agree() {
        let deployment = one("Deployment");
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, format!("localhost/stagger:{VERSION}"));
        for labels in [
            &deployment["metadata"]["labels"],
            &deployment["spec"]["template"]["metadata"]["labels"],
        ] {
            assert_eq!(labels["app.kubernetes.io/version"], VERSION);
        }
        let containerfile = read("deploy/Containerfile");
        assert!(containerfile.contains(&format!("\nARG VERSION={VERSION}\n")));
        let toolchain = read("rust-toolchain.toml");
        let rust = containerfile
            .lines()
            .find_map(|line| line.strip_prefix("ARG RUST="))
            .unwrap();
        assert!(
            toolchain.contains(&format!("channel = {rust:?}")),
            "the image is built with Rust {rust}"
        );
        let copied = containerfile
            .lines()
            .filter_map(|line| line.strip_prefix("COPY "));
        for source in copied.filter(|words| !words.starts_with("--from")) {
            let mut words: Vec<_> = source.split(' ').collect();
            words.pop();
            for word in words {
                assert!(root().join(word).exists(), "{word}");
            }
        }
    }
}

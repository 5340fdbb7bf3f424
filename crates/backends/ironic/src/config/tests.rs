//! What configurations are taken, and what is said of the others.

use super::*;

/// As the guide has it, with two of each.
pub(crate) const GUIDE: &str = r#"
    name = "lab"
    endpoint = "http://127.0.0.1:16385"
    database = "mysql://reader@127.0.0.1:33306/ironic"
    ours = "mysql://stagger@127.0.0.1:33306/stagger"
    installed = "26.1.6"

    [commands]
    install = "ln -sfn /opt/ironic-{release} /opt/{service}"
    write_pin = "printf '[DEFAULT]\\npin_release_version = %s\\n' {pin} > /etc/ironic/{service}-pin.conf"
    remove_pin = ": > /etc/ironic/{service}-pin.conf"
    read_pin = "sed -n 's/^pin_release_version *= *//p' /etc/ironic/{service}-pin.conf"
    stop = "systemctl stop ironic-{service}"
    start = "systemctl start ironic-{service}"

    [[conductors]]
    name = "c1"
    host = "h1"
    registered = "127.0.1.1:18081"
    servers = ["rpc1/c1", "rpc2/c1"]

    [[conductors]]
    name = "c2"
    host = "h2"
    registered = "127.0.1.2:18082"
    servers = ["rpc1/c2", "rpc2/c2"]

    [[apis]]
    name = "a1"
    host = "h1"
    url = "http://127.0.0.1:16386"
    servers = ["b/a1"]

    [[apis]]
    name = "a2"
    host = "h2"
    url = "http://127.0.0.1:16387"
    servers = ["b/a2"]

    [tools]
    host = "h1"
    schema = "ironic-dbsync upgrade"
    migrate = "ironic-dbsync online_data_migrations --max-count {count}"

    [balancer]
    host = "lb"
    show = "echo 'show stat' | socat - /run/haproxy.sock"
    set = "echo 'set server {backend}/{server} state {state}' | socat - /run/haproxy.sock"

    [hooks]
    ramdisk_is_done = true
"#;

#[test]
fn the_guide_s_configuration_is_read_and_fits() {
    let config: IronicConfig = toml::from_str(GUIDE).unwrap();
    config.verify().unwrap();
    assert_eq!(config.services().count(), 4);
    assert_eq!(config.hosts(), BTreeSet::from(["h1", "h2", "lb"]));
    let c2 = config.conductor_registered("127.0.1.2:18082").unwrap();
    assert_eq!(c2.servers[0].to_string(), "rpc1/c2");
}

#[test]
fn the_guide_shows_a_configuration_that_is_taken() {
    let guide = include_str!("../../../../../docs/guides/ironic.md");
    let blocks = guide.split("```toml\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let block = blocks.find(|block| block.starts_with("[cluster]\n")).unwrap();
    let mut whole: toml::Table = toml::from_str(block).unwrap();
    let mut cluster: toml::Table = whole.remove("cluster").unwrap().try_into().unwrap();
    assert_eq!(cluster.remove("kind").unwrap().as_str(), Some("ironic"));
    let config: IronicConfig = cluster.try_into().unwrap();
    config.verify().unwrap();
    let hosts: Hosts = whole.remove("hosts").unwrap().try_into().unwrap();
    assert_eq!(hosts.timeout, 900);
    assert!(whole.is_empty());
}

#[test]
fn what_does_not_fit_is_named() {
    let refused = |from: &str, to: &str| {
        let text = GUIDE.replace(from, to);
        assert_ne!(text, GUIDE, "{from} is not there");
        toml::from_str::<IronicConfig>(&text)
            .map_err(|error| error.to_string())
            .and_then(|config| config.verify())
            .unwrap_err()
    };
    assert!(refused("name = \"c2\"", "name = \"a1\"").contains("called a1"));
    assert!(refused("127.0.1.2:18082", "127.0.1.1:18081").contains("registered as 127.0.1.1:18081"));
    assert!(refused("[\"b/a2\"]", "[\"b/a1\"]").contains("server b/a1"));
    assert!(refused("\"b/a2\"", "\"a2\"").contains("backend/server"));
    assert!(refused(" --max-count {count}", "").contains("{count}"));
    assert!(refused("mysql://reader", "oracle://reader").contains("no database"));
    assert!(refused("installed", "instaled").contains("instaled"));
    for host in ["-oProxyCommand=id", "h;id", "h'"] {
        assert!(refused("host = \"h2\"", &format!("host = \"{host}\"")).contains("host"));
    }
    for (from, to) in [
        ("mysql://reader@", "mysql://reader:hunter2hunter2@"),
        (
            "http://127.0.0.1:16385",
            "http://admin:hunter2hunter2@127.0.0.1:16385",
        ),
        ("/stagger\"", "/stagger?password=hunter2hunter2\""),
    ] {
        let why = refused(from, to);
        assert!(
            why.contains("has a password in it") && !why.contains("hunter2"),
            "{why}"
        );
    }
    let auth = |text: &str| {
        refused(
            "[commands]",
            &format!("{text}\npassword_file = \"/x\"\n[commands]"),
        )
    };
    let keystone = "[auth]\nkind = \"keystone\"\nurl = \"https://k/v3\"";
    assert!(auth(keystone).contains("give `application_credential`, or `user`"));
    assert!(
        auth(&format!(
            "{keystone}\napplication_credential = \"a\"\nproject = \"p\""
        ))
        .contains("leave `project` out")
    );
    assert!(auth("[rpc_auth]\nkind = \"http-basic\"\nuser = \"a:b\"").contains("without a colon"));
    assert!(auth("token = \"t\"\n[auth]\nkind = \"http-basic\"\nuser = \"a\"").contains("one of them"));
    let shown = auth(
        &keystone
            .replace("k/v3", "me:hunter2hunter2@k/v3")
            .replace("[auth]", "[auth]\nuser = \"u\""),
    );
    assert!(
        shown.contains("has a password in it") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert!(refused("name = \"c2\"", "name = \"c;id\"").contains("c;id"));
    assert!(refused("\"b/a2\"", "\"b/a2;id\"").contains("cannot be a server"));
}

#[test]
fn a_word_of_before_is_read_and_refused_with_that_of_now() {
    let text = GUIDE.replace("[tools]\n", "[tools]\n    pins = \"list-pins\"\n");
    let config: IronicConfig = toml::from_str(&text).unwrap();
    assert!(config.verify().unwrap_err().contains("`tools.python`"));
}

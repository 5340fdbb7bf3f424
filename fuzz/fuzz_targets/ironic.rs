//! What stands beside an Ironic: the balancer's table, and the configuration that names its servers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stagger_ironic::balancer::BalancerStatus;
use stagger_ironic::config::BalancerServer;
use stagger_ironic::releases::Releases;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    if *which == b'r' {
        // A release as somebody wrote it, or as a database has it.
        let table = Releases::built_in();
        if let Ok(named) = table.find(text) {
            assert_eq!(
                table.find(&table.number(named.place)).map(|again| again.place),
                Ok(named.place)
            );
        }
        return;
    }
    let Ok(shown) = BalancerStatus::read(text) else {
        return;
    };
    for line in text.lines() {
        let mut cells = line.split(',').map(str::to_owned);
        let (Some(backend), Some(server)) = (cells.next(), cells.next()) else {
            continue;
        };
        let server = BalancerServer { backend, server };
        assert!(
            shown
                .peers(&server)
                .all(|peer| *peer != server && peer.backend == server.backend),
            "no server is its own peer"
        );
        let _ = shown.server(&server);
    }
});

//! A process that is killed at any request or append, and another that carries on, come to the same end.

use stagger_core::model::Evacuate;
use stagger_core::run::Ending;

use crate::common::{Setup, setup};
use crate::double::{Dies, World};
use crate::lives::{End, Lives, all_is_well, with_failover};

/// Small, and with all that a visit can meet: the master, a pair, a shared instance, one that is down.
fn small() -> World {
    let mut world = World::with_nodes(3);
    world.add("a", "drbd", "n1", Some("n2"));
    world.add("b", "drbd", "n2", Some("n3"));
    world.add("s", "sharedfile", "n2", None);
    world.add_down("down", "drbd", "n3", Some("n1"));
    world.lag = 1;
    world
}

async fn make() -> Setup {
    let mut setup = setup(small()).await;
    with_failover(&mut setup);
    setup
}

fn lives(setup: &Setup) -> Lives<'_> {
    let mut lives = Lives::new(setup);
    lives.moving.evacuate = Evacuate::Everything;
    lives
}

async fn to_the_end(lives: &mut Lives<'_>, what: &str) -> u32 {
    for number in 1..10 {
        match lives.live().await {
            End::Killed => {}
            End::Over(Ending::Done) => return number,
            other => panic!("{what}: {other:?}"),
        }
    }
    panic!("{what}: it never comes to an end");
}

/// How many points to leave out between two; the environment may ask for all (`EVERY=1`).
fn stride(usual: usize) -> usize {
    std::env::var("EVERY")
        .ok()
        .and_then(|every| every.parse().ok())
        .unwrap_or(usual)
}

#[tokio::test]
async fn killed_at_any_append_it_comes_to_the_same_end() {
    let setup = make().await;
    let mut undisturbed = lives(&setup);
    to_the_end(&mut undisturbed, "undisturbed").await;
    let points = undisturbed.processes.touches;
    all_is_well(&setup.world(), &small(), &["n1", "n2", "n3"]);
    assert!(points > 40, "{points}");
    println!("{points} appends");
    let mut killed = 0;
    for point in (1..=points).step_by(stride(5)) {
        let setup = make().await;
        let mut lives = lives(&setup);
        lives.processes.dies_at = point;
        let what = format!("killed at append {point}");
        killed += u32::from(to_the_end(&mut lives, &what).await > 1);
        let world = setup.world();
        println!("{what}");
        all_is_well(&world, &small(), &["n1", "n2", "n3"]);
    }
    assert!(killed > 10, "{killed}");
}

#[tokio::test]
async fn killed_at_any_request_it_comes_to_the_same_end() {
    let setup = make().await;
    let mut undisturbed = lives(&setup);
    let before = setup.world().requests;
    to_the_end(&mut undisturbed, "undisturbed").await;
    let points = setup.world().requests - before;
    println!("{points} requests and ticks");
    let mut killed = 0;
    for (number, point) in (1..=points).step_by(stride(29)).enumerate() {
        let late = [2, 9, 25, 60][number % 4];
        for dies in [Dies::Before, Dies::After, Dies::Late(late)] {
            let setup = make().await;
            let mut lives = lives(&setup);
            let at = setup.world().requests + point;
            setup.world().kill = Some((at, dies));
            let what = format!("killed at request {point}, {dies:?}");
            killed += u32::from(to_the_end(&mut lives, &what).await > 1);
            for _ in 0..80 {
                setup.world().tick();
            }
            println!("{what}");
            all_is_well(&setup.world(), &small(), &["n1", "n2", "n3"]);
        }
    }
    assert!(killed > 10, "{killed}");
}

//! The page as a browser without a script gets it, and what a script asks for.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    reason = "test code"
)]

mod server;

use server::Served;

const PAGE: &str = "/runs/sim-demo";
const PARTS: &str = "/runs/sim-demo/parts";

#[tokio::test]
async fn while_the_store_is_away_the_last_state_is_shown_to_who_may_see_it() {
    let served = Served::at_address().await;
    let all = served.token("look", &[]);
    let other = served.token("operate", &["rollback"]);
    let with = async |path: &str, token: &str| served.with(path, &[("authorization", token)]).await;
    assert_eq!(with(PAGE, &all).await.status, 200);
    assert_eq!(with("/", &all).await.status, 200);
    served.lose_the_store();
    for path in [PAGE, "/"] {
        let page = with(path, &all).await;
        assert_eq!(page.status, 503, "{path}");
        for part in [
            "The store does not answer",
            "it is away",
            "is shown is as of",
            "INTERRUPTED",
            "demo",
        ] {
            assert!(page.body.contains(part), "{path} has no {part}: {}", page.body);
        }
    }
    // A script is told that there is no news.
    assert_eq!(with(PARTS, &all).await.status, 503);
    let hidden = with(PAGE, &other).await;
    assert_eq!(hidden.status, 503);
    assert!(!hidden.body.contains("osd.0"), "{}", hidden.body);
    let list = with("/", &other).await;
    assert!(
        list.body.contains("rollback") && !list.body.contains("sim-demo"),
        "{}",
        list.body
    );
}

#[tokio::test]
async fn of_a_run_that_nobody_has_looked_at_nothing_is_made_up() {
    let served = Served::at_socket().await;
    served.lose_the_store();
    for path in [PAGE, "/"] {
        let page = served.get(path).await;
        assert_eq!(page.status, 503, "{path}");
        assert!(
            page.body.contains("does not answer") && !page.body.contains("osd.0"),
            "{}",
            page.body
        );
    }
}

#[tokio::test]
async fn a_script_is_sent_what_it_lacks() {
    let served = Served::at_socket().await;
    let page = served.get(PAGE).await.body;
    let digests: Vec<&str> = page
        .split("data-digest=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(digests.len() > 10, "{digests:?}");
    let have = digests.join(".");
    let sent = async |more: &str| {
        let parts = served.get(&format!("{PARTS}?have={have}{more}")).await.json();
        let parts = parts["parts"].as_array().unwrap().clone();
        let with_html = parts.iter().filter(|part| part.get("html").is_some());
        let names: Vec<String> = with_html
            .map(|part| part["name"].as_str().unwrap().to_owned())
            .collect();
        (parts.len(), names)
    };
    assert_eq!(sent("").await, (digests.len(), Vec::new()));
    let (_, explained) = sent("&unit=osd.0").await;
    assert_eq!(explained, ["unit"]);
    served.write(1).await;
    let (_, changed) = sent("").await;
    assert!(
        !changed.is_empty() && changed.len() < digests.len() / 2,
        "{changed:?}"
    );
    // Waves that are over stay as they are.
    assert!(!changed.contains(&"wave-1".to_owned()), "{changed:?}");
}

#[tokio::test]
async fn the_map_has_a_digit_for_each_unit() {
    let served = Served::at_socket().await;
    let states = served.get(PARTS).await.json()["states"]
        .as_str()
        .unwrap()
        .to_owned();
    let map = served.get("/runs/sim-demo/map").await.json();
    let hosts = map["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group[1].as_array().unwrap());
    let names: Vec<&str> = hosts
        .flat_map(|host| host[1].as_array().unwrap())
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(names.len(), states.len());
    let legend = map["legend"].as_array().unwrap().len();
    assert!(
        states.bytes().all(|digit| usize::from(digit - b'0') < legend),
        "{states}"
    );
    let first = names.iter().position(|name| *name == "mon.a").unwrap();
    // It was changed first.
    assert_eq!(
        map["legend"][usize::from(states.as_bytes()[first] - b'0')][0],
        "done"
    );
}

/// The numbers of the events that a page shows, as they stand there, and from which event on there are older ones.
fn lines(page: &str) -> (Vec<u64>, Option<u64>) {
    let body = page.split("<table class=\"journal\">").nth(1).unwrap_or_default();
    let body = body.split("</table>").next().unwrap_or_default();
    let rows = body.split("<td class=\"number\">").skip(1);
    let number = |row: &str| row.split('<').next().unwrap().parse().unwrap();
    let older = page
        .split("before=")
        .nth(1)
        .map(|rest| rest.split('#').next().unwrap().parse().unwrap());
    (rows.map(number).collect(), older)
}

#[tokio::test]
async fn filters_leave_what_is_asked_for_and_pages_leave_out_nothing() {
    let served = Served::at_socket().await;
    served.write(440).await;
    let told = async |query: &str| served.get(&format!("{PAGE}?{query}")).await.body;
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = told(&before.map_or(String::new(), |before| format!("before={before}"))).await;
        let (numbers, older) = lines(&page);
        all.extend(numbers);
        if older.is_none() {
            break;
        }
        assert_ne!(older, before);
        before = older;
    }
    assert!(
        all.len() > 150 && all.is_sorted_by(|one, other| one > other),
        "{all:?}"
    );
    assert!(told("").await.contains(&format!("{} of {0} lines", all.len())));
    // What people asked for, and what is told of one unit.
    let (asked, _) = lines(&told("of=people").await);
    assert_eq!(asked, [622, 359]);
    let page = told("q=OSD.59").await;
    let (of_unit, _) = lines(&page);
    assert!(
        !of_unit.is_empty() && of_unit.len() < all.len() / 4,
        "{of_unit:?}"
    );
    // Older lines stand behind the same filter.
    let (_, older) = lines(&told("q=gate&of=waits&before=600").await);
    assert_eq!(older, None);
    assert!(told("q=%22%3E%3Cb%3E").await.contains("0 of "));
    let twice = served.get(&format!("{PAGE}?q=%3Cb%3E&q=2")).await;
    assert!(
        twice.status == 422 && !twice.body.contains("<b>"),
        "{}",
        twice.body
    );
}

//! Keys do what the foot says, and the screen fits any terminal.

use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use stagger_core::run::{Command, Entry};
use stagger_core::view;
use stagger_report::Reading;

use crate::commands::journal::entry;

use super::{KeyAction, Mode, Screen, ScreenData, draw, key};

const DEMO: &str = include_str!("../../../report/tests/journals/demo.jsonl");

/// The run as it stood at an event.
fn shown_at(until: usize) -> ScreenData {
    let entries: Vec<Entry> = DEMO
        .lines()
        .take(until)
        .map(|line| entry(line).unwrap())
        .collect();
    let read = Reading::of(&entries).unwrap().unwrap();
    ScreenData {
        left: None,
        view: view::run(&read.run, None),
        read,
        words: ["require-osd-release", "left-behind-osd"]
            .map(str::to_owned)
            .to_vec(),
        unread: None,
    }
}

/// What the terminal shows, row by row.
fn drawn(shown: &ScreenData, screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let now: Timestamp = shown.read.history.last;
    terminal
        .draw(|frame| draw(frame, shown, screen, now, false))
        .unwrap();
    let buffer = terminal.backend().buffer();
    (0..height)
        .map(|y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
                .trim_end()
                .to_owned()
        })
        .collect()
}

fn press(screen: &mut Screen, shown: &ScreenData, keys: &str) -> KeyAction {
    let mut act = KeyAction::Nothing;
    for letter in keys.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            letter => KeyCode::Char(letter),
        };
        act = key(screen, shown, KeyEvent::new(code, KeyModifiers::NONE));
    }
    act
}

#[test]
fn any_terminal_has_the_verdict_above_and_the_keys_below() {
    for until in [3, 20, 200, 650] {
        let shown = shown_at(until);
        for (width, height) in [(1, 1), (20, 5), (60, 20), (100, 30), (250, 70)] {
            let rows = drawn(&shown, &Screen::default(), width, height);
            if width >= 60 {
                assert!(rows[0].starts_with(&shown.view.verdict.to_string()), "{rows:#?}");
                assert!(rows[usize::from(height) - 1].starts_with("q quit"), "{rows:#?}");
            }
        }
    }
}

#[test]
fn a_run_in_mid_wave_fills_a_terminal() {
    let rows = drawn(&shown_at(200), &Screen::default(), 96, 28);
    insta::assert_snapshot!(rows.join("\n"));
}

#[test]
fn pause_and_approval_are_asked_for_only_after_a_yes() {
    let shown = shown_at(200);
    let mut screen = Screen::default();
    assert_eq!(press(&mut screen, &shown, "p"), KeyAction::Nothing);
    assert_eq!(screen.mode, Mode::Sure(Command::Pause));
    assert!(
        drawn(&shown, &screen, 80, 20)[19].starts_with("pause run"),
        "it asks"
    );
    assert_eq!(press(&mut screen, &shown, "n"), KeyAction::Nothing);
    assert_eq!(press(&mut screen, &shown, "py"), KeyAction::Ask(Command::Pause));
    assert_eq!(press(&mut screen, &shown, "ry"), KeyAction::Ask(Command::Resume));
    // Which one is typed in full: the next on the way may not be the one that is waited for.
    assert_eq!(press(&mut screen, &shown, "aleft\n"), KeyAction::Nothing);
    assert_eq!(screen.mode, Mode::Look);
    let KeyAction::Ask(Command::Approve { door }) = press(&mut screen, &shown, "aleft-behind-osd\ny") else {
        panic!("{screen:?}");
    };
    assert_eq!(door.as_str(), "left-behind-osd");
}

#[test]
fn of_a_run_that_is_over_nothing_is_asked() {
    let shown = shown_at(650);
    assert!(shown.view.ending.is_some());
    for keys in ["py", "ry", "ay"] {
        assert_eq!(press(&mut Screen::default(), &shown, keys), KeyAction::Nothing);
    }
    assert_eq!(press(&mut Screen::default(), &shown, "q"), KeyAction::Quit);
}

#[test]
fn a_filter_shows_lines_that_hold_it_and_a_unit_is_explained() {
    let shown = shown_at(650);
    let mut screen = Screen::default();
    press(&mut screen, &shown, "/judged\n");
    let rows = drawn(&shown, &screen, 120, 40);
    let title = rows.iter().position(|row| row.contains("UTC with")).unwrap();
    let lines: Vec<&String> = rows[title + 1..39].iter().filter(|row| !row.is_empty()).collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains("judged")),
        "{lines:#?}"
    );

    let unit = shown.read.history.units.keys().next().unwrap().to_string();
    press(&mut screen, &shown, &format!("e{unit}\n"));
    let rows = drawn(&shown, &screen, 120, 40).join("\n");
    assert!(rows.contains(&format!("{unit} is done")), "{rows}");
    press(&mut screen, &shown, "x");
    assert_eq!(screen.mode, Mode::Look);
}

#[test]
fn scrolled_back_to_the_beginning_the_first_lines_are_shown() {
    let shown = shown_at(650);
    let mut screen = Screen::default();
    press(&mut screen, &shown, "g");
    let rows = drawn(&shown, &screen, 120, 40).join("\n");
    assert!(rows.contains(&shown.read.lines[0].text[..20]), "{rows}");
}

#[test]
fn what_could_not_be_read_since_is_told() {
    let mut shown = shown_at(100);
    shown.unread = Some("the journal cannot be read: disk I/O error".to_owned());
    let rows = drawn(&shown, &Screen::default(), 100, 30);
    assert!(rows[28].starts_with("as of event 100"), "{rows:#?}");
}

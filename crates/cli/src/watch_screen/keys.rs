//! The effect of a key.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use stagger_core::model::PartName;
use stagger_core::run::Command;

use super::{Mode, Screen, ScreenData};

/// So many lines are a page.
const PAGE: usize = 10;

/// What is to be done besides drawing anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyAction {
    /// Nothing.
    Nothing,
    /// Leave the screen; the run goes on.
    Quit,
    /// Ask the run for that.
    Ask(Command),
}

/// One key.
pub(crate) fn key(screen: &mut Screen, shown: &ScreenData, key: KeyEvent) -> KeyAction {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return KeyAction::Quit;
    }
    match &mut screen.mode {
        Mode::Look => return handle_view_key(screen, shown, key.code),
        Mode::Filter => match key.code {
            KeyCode::Enter => screen.mode = Mode::Look,
            KeyCode::Esc => {
                screen.filter.clear();
                screen.mode = Mode::Look;
            }
            code => {
                typed(&mut screen.filter, code);
                screen.back = 0;
            }
        },
        Mode::Unit(name) => match key.code {
            KeyCode::Enter if !name.is_empty() => screen.mode = Mode::Told(std::mem::take(name)),
            KeyCode::Enter | KeyCode::Esc => screen.mode = Mode::Look,
            code => typed(name, code),
        },
        Mode::Word(word) => match key.code {
            KeyCode::Enter => {
                let typed = std::mem::take(word);
                screen.mode = Mode::Look;
                match shown.words.iter().find(|known| **known == typed) {
                    Some(known) => approve(screen, known),
                    None => screen.told = Some(format!("unknown command {typed:?}")),
                }
            }
            KeyCode::Esc => screen.mode = Mode::Look,
            code => typed(word, code),
        },
        Mode::Told(_) => screen.mode = Mode::Look,
        Mode::Sure(command) => {
            let command = command.clone();
            screen.mode = Mode::Look;
            if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                return KeyAction::Ask(command);
            }
            screen.told = Some("nothing was requested".to_owned());
        }
    }
    KeyAction::Nothing
}

fn handle_view_key(screen: &mut Screen, shown: &ScreenData, code: KeyCode) -> KeyAction {
    screen.told = None;
    let last = shown.read.lines.len();
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return KeyAction::Quit,
        KeyCode::Up | KeyCode::Char('k') => screen.back = (screen.back + 1).min(last),
        KeyCode::Down | KeyCode::Char('j') => screen.back = screen.back.saturating_sub(1),
        KeyCode::PageUp => screen.back = (screen.back + PAGE).min(last),
        KeyCode::PageDown => screen.back = screen.back.saturating_sub(PAGE),
        KeyCode::Home | KeyCode::Char('g') => screen.back = last,
        KeyCode::End | KeyCode::Char('G') => screen.back = 0,
        KeyCode::Char('/') => screen.mode = Mode::Filter,
        KeyCode::Char('e') => screen.mode = Mode::Unit(String::new()),
        KeyCode::Char('p' | 'r' | 'a') if shown.view.ending.is_some() => {
            screen.told = Some("the run is over".to_owned());
        }
        KeyCode::Char('p') => screen.mode = Mode::Sure(Command::Pause),
        KeyCode::Char('r') => screen.mode = Mode::Sure(Command::Resume),
        KeyCode::Char('a') if shown.words.is_empty() => {
            screen.told = Some("this run has nothing to approve".to_owned());
        }
        KeyCode::Char('a') => screen.mode = Mode::Word(String::new()),
        _ => {}
    }
    KeyAction::Nothing
}

fn approve(screen: &mut Screen, word: &str) {
    if let Ok(door) = PartName::new(word) {
        screen.mode = Mode::Sure(Command::Approve { door });
    }
}

fn typed(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(letter) => text.push(letter),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}

//! What a person reads: the state, what it means, what each file holds, what is done about it, and what to do next.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use session_tree::recover::{
    self as core, Action, Choice, Content, Inspection, Recovery, Rehearsal, State, Stray,
};
use session_tree::{Decoded, Error};

use super::{Use, name_of};
use crate::diagnose::{self, harmless};

/// Everything about a state, and what to do next.
pub(super) fn inspection(file: &Path, inspection: &Inspection) -> String {
    found(file, inspection) + &next(file, inspection) + &stray_hint(file, &inspection.strays)
}

/// What a recovery would do, or why it would refuse.
pub(super) fn plan(file: &Path, rehearsal: &Rehearsal, choice: Option<Choice>) -> String {
    let inspection = &rehearsal.inspection;
    let mut text = found(file, inspection) + &choice_words(choice, inspection.state);
    match rehearsal.actions {
        Some([]) => text += "\nnothing to do\n",
        Some(actions) => {
            text += "\na recovery would:\n";
            for action in actions {
                let _ = writeln!(text, "  {}", intention(*action));
            }
            text += "nothing was done\n";
        }
        None => text = text + "\na recovery would refuse, and change nothing\n" + &next(file, inspection),
    }
    text
}

/// What a recovery said no to, and what to do next.
pub(super) fn refusal(file: &Path, inspection: &Inspection, choice: Option<Choice>) -> String {
    let mut text = found(file, inspection) + &choice_words(choice, inspection.state);
    text += "\nnothing was done\n";
    text + &next(file, inspection) + &stray_hint(file, &inspection.strays)
}

/// What becomes of a choice that does not decide.
fn choice_words(choice: Option<Choice>, state: State) -> String {
    let Some(choice) = choice else { return String::new() };
    let option = option_of(choice);
    match Use::of(choice, state) {
        Use::Used => String::new(),
        Use::NotNeeded => {
            format!("\n`{option}` decides nothing here: in this state there is nothing to choose\n")
        }
        Use::NoHelp => format!("\n`{option}` does not resolve this state\n"),
    }
}

/// What is to be known where another process is at work.
pub(super) fn held(is_held: bool) -> &'static str {
    if is_held {
        "\nanother process has the session locked at this moment: a recovery waits some seconds for it, then refuses\n"
    } else {
        ""
    }
}

/// What a recovery found and did.
pub(super) fn recovery(
    file: &Path,
    recovery: &Recovery,
    choice: Option<Choice>,
    now: Option<&Inspection>,
) -> String {
    let mut text = heading(file, recovery.state) + &choice_words(choice, recovery.state);
    if recovery.did.is_empty() {
        text += "\nnothing to do\n";
    } else {
        text += "\ndone:\n";
    }
    for step in &recovery.did {
        let name = harmless::text(step.name.as_encoded_bytes());
        let _ = match step.action {
            Action::RemoveMarker => {
                writeln!(text, "  removed the marker {name}: the session holds everything that it held")
            }
            Action::SetAsideCurrent => writeln!(text, "  gave the session file the new name {name}"),
            Action::SetAsideMarker => writeln!(text, "  gave the marker the new name {name}"),
            Action::MarkerBecomesCurrent => writeln!(text, "  made the marker the session file {name}"),
        };
    }
    let Some(now) = now else { return text };
    if !recovery.did.is_empty() {
        text += "\nnow:\n";
        text += &contents(file, now);
    }
    if !recovery.did.is_empty() {
        text += match now.state {
            State::Clean => "\nthe session loads again\n",
            State::Absent => "\na session can be created here again\n",
            _ => "\nsomebody changed the files meanwhile: inspect them again\n",
        };
    }
    let set_aside = |action| matches!(action, Action::SetAsideCurrent | Action::SetAsideMarker);
    if let Some(step) = recovery.did.iter().find(|step| set_aside(step.action)) {
        let kept = file.with_file_name(&step.name);
        // What does not load has no tree to be drawn.
        let look = match recovery.state {
            State::InterruptedCreate | State::MarkerUnreadable | State::PathDamaged => "verify",
            _ => "tree",
        };
        let _ = writeln!(
            text,
            "\nnext: see what you set aside, and remove it once you do not miss anything\n  {}",
            command(look, &kept)
        );
    }
    text + &stray_hint(file, &now.strays)
}

/// Strays that were removed, or would be.
pub(super) fn strays(file: &Path, strays: &[Stray], dry_run: bool) -> String {
    let mut text = format!("{}: ", harmless::path(file));
    match (strays.len(), dry_run) {
        (0, _) => text += "no temporary of a dead process beside it\n",
        (count, true) => {
            let _ = writeln!(text, "would remove {count}, and removed none");
        }
        (count, false) => {
            let _ = writeln!(text, "removed {count}");
        }
    }
    text + &stray_list(strays)
}

/// One line about an error, and what to do unless the state that follows says that.
pub(super) fn error(file: &Path, error: &Error, state_follows: bool) -> String {
    let mut text = format!("session-harness: {}\n", harmless::text(error.to_string().as_bytes()));
    if !state_follows {
        let _ = writeln!(text, "help: {}", diagnose::help(error, file));
    }
    text
}

fn found(file: &Path, inspection: &Inspection) -> String {
    heading(file, inspection.state) + "\n" + &contents(file, inspection)
}

fn heading(file: &Path, state: State) -> String {
    format!("{}: {state}\n  {}\n", harmless::path(file), state.words())
}

fn contents(file: &Path, inspection: &Inspection) -> String {
    let mut text = one_content("session", &name_of(file), &inspection.current);
    text += &one_content("marker ", &inspection.marker_name, &inspection.marker);
    if let (Content::Session(current), Content::Session(marker)) = (&inspection.current, &inspection.marker) {
        text += &comparison(current, marker);
    }
    text
}

fn one_content(role: &str, name: &OsStr, content: &Content) -> String {
    let name = harmless::text(name.as_encoded_bytes());
    let holds = match content {
        Content::Absent => "not there".to_owned(),
        Content::Foreign(kind) => format!("{}, which no store makes", kind.words()),
        Content::Session(session) => summary(session),
        Content::Refused(error) => {
            let place = error.position().map(|at| format!(", line {}", at.line)).unwrap_or_default();
            let message = harmless::text(error.message().as_bytes());
            format!("does not load: {message}{place} ({})", error.code())
        }
    };
    format!("  {role}  {name}\n           {holds}\n")
}

fn summary(session: &Decoded) -> String {
    let entries = session.entries();
    let mut text = format!("loads: {}", counted(entries.len()));
    if let Some(last) = entries.last() {
        let _ = write!(text, ", the last of {}", harmless::shortened(last.timestamp().as_bytes(), 40));
    }
    match session.torn_tail() {
        0 => {}
        bytes => {
            let _ = write!(text, ", then {bytes} bytes of a record that was never completed");
        }
    }
    text
}

fn comparison(current: &Decoded, marker: &Decoded) -> String {
    if current.header() != marker.header() {
        return "  they are two different sessions\n".to_owned();
    }
    let pairs = current.entries().iter().zip(marker.entries());
    let shared = pairs.take_while(|(one, other)| one == other).count();
    let more = |session: &Decoded| match session.entries().len() - shared {
        0 => "nothing more".to_owned(),
        count => format!("{} more", counted(count)),
    };
    format!(
        "  both hold the same first {}; then the session has {}, the marker {}\n",
        counted(shared),
        more(current),
        more(marker)
    )
}

fn counted(entries: usize) -> String {
    match entries {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

fn next(file: &Path, inspection: &Inspection) -> String {
    let look = || command("verify", file);
    match inspection.state {
        State::Clean => "\nnothing to do\n".to_owned(),
        State::Absent => "\nnothing to do: a session can be created here\n".to_owned(),
        State::CommitInFlight => {
            "\nnext: wait for that process, then look again. Should it hang, end it: what it leaves can be recovered\n"
                .to_owned()
        }
        State::InterruptedCreate => advised(
            "nothing was ever stored in it. Give it a new name, then create the session again",
            file,
            inspection.state,
            &[Choice::SetAside],
        ),
        State::Damaged => {
            format!("\nnext: see where it is damaged, and restore it from a copy\n  {}\n", look())
        }
        State::Diverged => advised(
            "choose which one goes on as the session. The other one is kept under a new name",
            file,
            inspection.state,
            &[Choice::Current, Choice::Marker],
        ),
        State::PathDamaged => advised(
            &format!(
                "restore the session from a newer copy if there is one ({} shows where it is damaged), or go on with \
                 the marker. The session file is kept under a new name",
                look()
            ),
            file,
            inspection.state,
            &[Choice::Marker],
        ),
        State::BothLost | State::BothBad => {
            "\nnext: restore the session from a copy. Nothing here loads, and nothing of it will be removed\n".to_owned()
        }
        State::Foreign => {
            "\nnext: see what that is and move it away yourself. No store reads it, and none will remove it\n".to_owned()
        }
        _ => alone(file, inspection.state),
    }
}

/// A state that is resolved without a choice.
fn alone(file: &Path, state: State) -> String {
    let mut text = format!("\nnext: nothing has to be guessed\n  {}\n", command("recover", file));
    for action in core::plan(state, None).unwrap_or_default() {
        let _ = writeln!(text, "  to {}", intention(*action));
    }
    text
}

/// A state that needs a choice, with the command and the outcome of each.
fn advised(advice: &str, file: &Path, state: State, choices: &[Choice]) -> String {
    let mut text = format!("\nnext: {advice}\n");
    for choice in choices {
        let _ = writeln!(text, "  {}", command(&format!("recover {}", option_of(*choice)), file));
        for action in core::plan(state, Some(*choice)).unwrap_or_default() {
            let _ = writeln!(text, "    to {}", intention(*action));
        }
    }
    text
}

/// How a choice is typed.
fn option_of(choice: Choice) -> String {
    match choice {
        Choice::SetAside => "--set-aside".to_owned(),
        named => format!("--choose {}", named.token()),
    }
}

fn intention(action: Action) -> &'static str {
    match action {
        Action::RemoveMarker => "remove the marker: the session holds everything that it holds",
        Action::SetAsideCurrent => "keep the session file under a new name",
        Action::SetAsideMarker => "keep the marker under a new name",
        Action::MarkerBecomesCurrent => "make the marker the session file",
    }
}

fn stray_hint(file: &Path, strays: &[Stray]) -> String {
    if strays.is_empty() {
        return String::new();
    }
    let (list, remove) = (stray_list(strays), command("recover --remove-strays", file));
    format!(
        "\nbeside it, left by dead processes; a session that loads needs none of them:\n{list}  {remove}\n"
    )
}

fn stray_list(strays: &[Stray]) -> String {
    let one = |stray: &Stray| {
        format!("  {} ({} bytes)\n", harmless::text(stray.name.as_encoded_bytes()), stray.size)
    };
    strays.iter().map(one).collect()
}

/// A command that can be typed as it stands, or with FILE where the path cannot.
fn command(what: &str, file: &Path) -> String {
    format!("session-harness {what} {}", harmless::shell_word(file))
}

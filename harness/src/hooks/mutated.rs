//! A valid session with one change.

use arbitrary::{Arbitrary, Result, Unstructured};
use session_tree::decode;

use super::{built, load};
use crate::model::Session;

/// What becomes of a file between two loads. Places count modulo what is there.
#[derive(Debug, Clone, Arbitrary)]
enum Change {
    /// Nothing is left from here on, as after a crash.
    CutOff(u16),
    /// Zeros from here, so many, as after a power cut.
    Zeros(u16, u8),
    /// Another byte.
    Overwrite(u16, u8),
    /// More bytes, as from another writer.
    Insert(u16, Vec<u8>),
    /// Bytes gone.
    Delete(u16, u8),
    /// A line twice.
    DuplicateLine(u8),
    /// A line gone.
    DropLine(u8),
    /// Two lines in each other's place.
    SwapLines(u8, u8),
}

/// A valid session with one change loads as the same session, as a beginning of it where its end is gone, or not at
/// all; never as another history (requirements F4, F7, R5). Where a change may make another valid file, such as one
/// letter for another in a text, the independent model decides.
///
/// # Panics
///
/// If that does not hold.
pub fn mutated_session(data: &[u8]) {
    let mut input = Unstructured::new(data);
    // Too few bytes make no case.
    if let Ok((session, change)) = case(&mut input) {
        check(&session, &change);
    }
}

fn case(input: &mut Unstructured<'_>) -> Result<(Session, Change)> {
    Ok((built::session(input)?, input.arbitrary()?))
}

fn check(session: &Session, change: &Change) {
    let whole = session.encode();
    let changed = applied(&whole, change);
    load(&changed);
    let before = lines(&whole);
    let Ok(decoded) = decode(changed.clone()) else { return };
    let mut after = vec![decoded.header().to_json()];
    after.extend(decoded.entries().iter().map(session_tree::Entry::to_json));
    let is_beginning = after.len() <= before.len() && before[..after.len()] == after;
    match change {
        Change::CutOff(_) => {
            let kept = changed.split(|byte| *byte == b'\n').count() - 1;
            assert!(is_beginning && after.len() >= kept, "a file cut off shows {after:?}");
        }
        Change::Zeros(_, 0) => assert_eq!(after, before, "nothing was changed"),
        Change::Zeros(..) => panic!("zeros are taken for a session: {after:?}"),
        Change::DuplicateLine(_) => panic!("a line that is there twice is taken: {after:?}"),
        Change::DropLine(line) => {
            let mut rest = before.clone();
            rest.remove(usize::from(*line) % before.len());
            assert_eq!(after, rest, "with a line gone");
        }
        Change::SwapLines(..) => {
            let (mut after, mut before) = (after, before);
            after.sort_unstable();
            before.sort_unstable();
            assert_eq!(after, before, "with two lines in each other's place");
        }
        // Whether what is there now is a session is for the model to say, with which `load` has compared it.
        Change::Overwrite(..) | Change::Insert(..) | Change::Delete(..) => {}
    }
}

/// The lines without their line feeds.
fn lines(file: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(file).split_terminator('\n').map(str::to_owned).collect()
}

fn applied(whole: &[u8], change: &Change) -> Vec<u8> {
    let place = |at: u16| usize::from(at) % whole.len();
    let range = |at: u16, length: u8| place(at)..(place(at) + usize::from(length)).min(whole.len());
    let mut bytes = whole.to_vec();
    match change {
        Change::CutOff(at) => bytes.truncate(place(*at)),
        Change::Zeros(at, length) => bytes[range(*at, *length)].fill(0),
        Change::Overwrite(at, byte) => bytes[place(*at)] = *byte,
        Change::Insert(at, more) => drop(bytes.splice(place(*at)..place(*at), more.iter().copied())),
        Change::Delete(at, length) => drop(bytes.drain(range(*at, *length))),
        Change::DuplicateLine(_) | Change::DropLine(_) | Change::SwapLines(..) => {
            let mut lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
            let count = lines.len();
            let place = |line: u8| usize::from(line) % count;
            match change {
                Change::DuplicateLine(line) => lines.insert(place(*line), lines[place(*line)]),
                Change::DropLine(line) => drop(lines.remove(place(*line))),
                Change::SwapLines(one, other) => lines.swap(place(*one), place(*other)),
                _ => {}
            }
            bytes = lines.concat();
        }
    }
    bytes
}

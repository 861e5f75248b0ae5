//! Files that a crash or a disk has changed.

use std::collections::BTreeMap;
use std::fs;
use std::iter;

use super::ground::{Appended, Ground, Log, Process};
use super::life::{active, tree};
use super::{Judged, Stop, unsupported, violated};
use crate::call::EntryView;

/// Cuts of a last entry that is longer than this leave some lengths out.
const MOST_CUTS: usize = 400;

pub(super) fn torn_tail(ground: &mut Ground<'_>) -> Judged {
    let Log { bytes, ends } = ground.grown_log()?;
    let Some(&[.., start, end]) = ends.get(..) else { return Ok(()) };
    let step = (end - start).div_ceil(MOST_CUTS);
    let (mut process, mut other) = (ground.start()?, ground.start()?);
    for cut in (start..end).step_by(step) {
        if fs::metadata(ground.path()).is_ok() {
            fs::remove_file(ground.path())?;
        }
        fs::write(ground.path(), &bytes[..cut])?;
        let whence = format!("cut after {} of {} bytes of the last entry", cut - start, end - start);
        // What cannot be told may be refused; what is shown must be right.
        let Some(shown) = shown(ground, &mut process)? else { continue };
        ground.expect_but(1, &shown, &whence)?;
        let acknowledged = ground.acknowledged.clone();
        ground.acknowledged = shown;
        if matches!(ground.append(&mut process)?, Appended::Acknowledged) {
            let again = ground.loaded_after_append(&mut other, &whence)?;
            ground.expect_all(&again, &format!("{whence}, then an append"))?;
        }
        ground.acknowledged = acknowledged;
    }
    Ok(())
}

pub(super) fn damaged_middle(ground: &mut Ground<'_>) -> Judged {
    let Log { bytes, ends } = ground.grown_log()?;
    let Some(&[first, second, ..]) = ends.get(..) else { return Ok(()) };
    let last = second - 1;
    let gone: Vec<u8> = [&bytes[..first], &bytes[second..]].concat();
    let overwritten = |with: u8| {
        let mut bytes = bytes.clone();
        bytes[first..last].fill(with);
        bytes
    };
    for (what, damaged) in [
        ("wrote NULs over the second entry's line", overwritten(0)),
        ("wrote another text over the second entry's line", overwritten(b'x')),
        ("removed the second entry's line", gone),
    ] {
        fs::remove_file(ground.path())?;
        fs::write(ground.path(), damaged)?;
        let mut process = ground.start()?;
        if let Some(shown) = shown(ground, &mut process)? {
            let is_one_missing = shown.len() + 1 == ground.acknowledged.len();
            let showed = if is_one_missing { "showed the others without an error" } else { "gave no error" };
            ground.expect_all(&shown, &format!("the harness {what}; the load {showed}"))?;
        }
    }
    Ok(())
}

/// What a load shows; none where it is refused.
fn shown(ground: &Ground<'_>, process: &mut Process) -> Result<Option<Vec<EntryView>>, Stop> {
    Ok(process.reply(&ground.load())?.ok().map(|answer| answer.entries.unwrap_or_default()))
}

pub(super) fn parent_cycle(ground: &mut Ground<'_>) -> Judged {
    let Log { bytes, ends } = ground.grown_log()?;
    let ids: Vec<String> = ground.acknowledged.iter().map(|entry| entry.id.clone()).collect();
    let (Some(&[first, second, ..]), [root, .., last]) = (ends.get(..), &ids[..]) else { return Ok(()) };
    // The second entry's parent becomes the last entry, which descends from it.
    let Some(turned) = replaced(&bytes[first..second], root.as_bytes(), last.as_bytes()) else {
        return unsupported("its file does not name an entry's parent by its id");
    };
    fs::write(ground.path(), [&bytes[..first], &turned, &bytes[second..]].concat())?;
    let mut process = ground.start()?;
    let Some(shown) = shown(ground, &mut process)? else { return Ok(()) };
    if ground.store.has_trees && process.reply(&tree())?.is_ok() {
        // Whatever it says, it must say something.
        let _ = process.reply(&active())?;
    }
    match circle(&shown) {
        None => Ok(()),
        Some(id) => violated(format!("an entry that descends from itself was loaded: {id:?}")),
    }
}

/// With the one place in `bytes` where `from` stands changed; none where there is not one.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let places: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, window)| *window == from)
        .map(|(at, _)| at)
        .collect();
    match places[..] {
        [at] => Some([&bytes[..at], to, &bytes[at + from.len()..]].concat()),
        _ => None,
    }
}

/// An entry that is among its own ancestors.
fn circle(entries: &[EntryView]) -> Option<&str> {
    let parents: BTreeMap<&str, Option<&str>> =
        entries.iter().map(|entry| (entry.id.as_str(), entry.parent_id.as_deref())).collect();
    entries.iter().map(|entry| entry.id.as_str()).find(|id| {
        let ancestors =
            iter::successors(parents.get(id).copied().flatten(), |id| parents.get(id).copied().flatten());
        // A path without a circle is no longer than that.
        ancestors.take(entries.len()).any(|ancestor| ancestor == *id)
    })
}

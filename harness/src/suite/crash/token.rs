//! How a state is reached, as a text that replays it.

use std::fmt;
use std::str::FromStr;

use super::NAME;
use crate::crash::Profile;
use crate::fault::Plan;
use crate::workload::Workload;

/// How a state is reached: the workload, what goes wrong in it, and where the power was cut.
///
/// Reads `crash/posix/session,append/fsync@root#1_in_append#1=EIO_before,once@@12.3,4.1`: the plan is left out where
/// nothing goes wrong, and the part from `@@` on where the whole workload is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What a cut may lose.
    pub profile: Profile,
    /// The workload.
    pub workload: Workload,
    /// What goes wrong besides.
    pub plan: Plan,
    /// The cut in the workload, then those in the recoveries after it: which cut, and which of the disks that it may
    /// leave.
    pub cuts: Vec<(usize, usize)>,
}

impl Token {
    /// The workload that the state is in, without the cut.
    #[must_use]
    pub fn case(&self) -> Token {
        Token { cuts: Vec::new(), ..self.clone() }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}/{}/{}", self.profile, self.workload)?;
        if !self.plan.0.is_empty() {
            write!(f, "/{}", self.plan.slug())?;
        }
        for (at, (cut, disk)) in self.cuts.iter().enumerate() {
            write!(f, "{}{cut}.{disk}", if at == 0 { "@@" } else { "," })?;
        }
        Ok(())
    }
}

/// The text is no token of this suite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no state of the crash suite: one reads `crash/posix/session,append@@12.3`")]
pub struct NotAToken(String);

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Token, NotAToken> {
        parse(text).ok_or_else(|| NotAToken(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Token> {
    let (case, cuts) = text.split_once("@@").map_or((text, None), |(case, cuts)| (case, Some(cuts)));
    let mut parts = case.splitn(4, '/');
    let (suite, profile, workload) = (parts.next()?, parts.next()?, parts.next()?);
    if suite != NAME {
        return None;
    }
    let plan = parts.next().map_or(Some(Plan::default()), |slug| Plan::from_slug(slug, None).ok())?;
    let cut = |part: &str| {
        part.split_once('.').and_then(|(cut, disk)| Some((cut.parse().ok()?, disk.parse().ok()?)))
    };
    let cuts = cuts.map_or(Some(Vec::new()), |cuts| cuts.split(',').map(cut).collect())?;
    Some(Token { profile: profile.parse().ok()?, workload: workload.parse().ok()?, plan, cuts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_reads_back() {
        for text in [
            "crash/posix/session,append",
            "crash/ordered/new,append,second@@12.3",
            "crash/posix/torn,flush/fsync@root#1_in_flush#1=EIO_before,3_times+link@session>marker#1_in_flush#2=EIO_after,for_ever@@3.0,4.17",
        ] {
            assert_eq!(text.parse::<Token>().map(|token| token.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "crash",
            "crash/posix",
            "crash/fast/session",
            "crash/posix/session@@1",
            "faults/posix/session",
            "crash/posix/session/what",
        ] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}

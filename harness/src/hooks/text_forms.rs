//! The text forms of faults, workloads and states.

use std::fmt::{Debug, Display};
use std::str::{self, FromStr};

use crate::fault::Plan;
use crate::suite::crash::Token;
use crate::workload::Workload;

/// Any text as a fault plan, a workload and a replay token: what reads as one is written so that it reads as the same
/// one again. Whether it reads as any of them.
///
/// # Panics
///
/// If that does not hold.
pub fn plan(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else { return false };
    let plan = reads_back::<Plan>(text);
    if let Some(plan) = &plan {
        let slug = plan.slug();
        assert_eq!(Plan::from_slug(&slug, None).as_ref(), Ok(plan), "{slug}");
    }
    // A slug may leave the call out.
    let slug = Plan::from_slug(text, Some("append")).ok();
    if let Some(plan) = &slug {
        reads_back::<Plan>(&plan.to_string());
    }
    let is_case = reads_back::<Workload>(text).is_some() || reads_back::<Token>(text).is_some();
    plan.is_some() || slug.is_some() || is_case
}

fn reads_back<T: FromStr<Err: Debug> + Display + Debug + PartialEq>(text: &str) -> Option<T> {
    let read: T = text.parse().ok()?;
    let written = read.to_string();
    assert_eq!(written.parse::<T>().expect("what is written can be read"), read, "{written}");
    Some(read)
}

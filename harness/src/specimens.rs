//! The harness turned on stores that are broken on purpose: each must be caught, by the promise named for it, and
//! good ones must not be.
//!
//! One small store is written from the contract, on the independent model. Each specimen is that store with one defect,
//! a few lines away from the good one.

use crate::subject::{Candidate, Subject};
use crate::world::WorldOps;

mod commit;
mod conformance;
mod create;
mod defect;
mod fail;
mod gallery;
mod hunt;
mod in_place;
mod load;
mod place;
mod reader;
mod recover;
mod store;
mod table;
mod temporary;

pub use conformance::{Failed, first_failed, musts};
use defect::Defect;
pub use gallery::{Control, Gallery, Row, controls, rows, show};
pub use hunt::{Caught, DEPTH, Shown, broken_promises, hunt};
use reader::Flaw;
use store::SmallStore;
pub use table::{ALL, CANARY, Kind, SMALL};

/// A store that is built in: the small good one, or what is broken about it.
#[derive(Debug)]
pub struct Specimen {
    /// The name, behind `specimen:` where a subject is asked for.
    pub name: &'static str,
    /// What it is broken in.
    pub kind: Kind,
    /// What it does, in a line.
    pub story: &'static str,
    /// What must catch it; none for a good store.
    pub shown: Option<Shown>,
    defect: Option<Defect>,
    flaw: Option<Flaw>,
}

/// The built-in store that `specimen:NAME` means.
pub fn find(name: &str) -> Option<&'static Specimen> {
    let name = name.strip_prefix("specimen:")?;
    ALL.iter().chain([&SMALL, &CANARY]).find(|specimen| specimen.name == name)
}

impl Candidate for Specimen {
    fn name(&self) -> String {
        format!("specimen:{}", self.name)
    }

    fn start(&self, ops: WorldOps) -> Box<dyn Subject> {
        Box::new(SmallStore::new(ops, self.defect, self.flaw))
    }

    /// The directory and the present generation.
    fn descriptors(&self) -> usize {
        2
    }

    fn names_causes(&self) -> bool {
        true
    }
}

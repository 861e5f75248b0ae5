//! The suites.

pub mod crash;
pub mod explore;
pub mod faults;

//! The suites.

pub mod any_store;
pub mod crash;
pub mod explore;
pub mod faults;

//! The suites.

pub mod crash;
pub mod faults;

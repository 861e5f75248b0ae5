//! The suites.

pub mod faults;

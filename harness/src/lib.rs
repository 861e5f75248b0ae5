//! A conformance and fault-injection harness for session stores.

pub mod disk;
pub mod generate;
pub mod model;
pub mod tree_view;

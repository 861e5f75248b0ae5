//! A conformance and fault-injection harness for session stores.

pub mod disk;
pub mod hooks;

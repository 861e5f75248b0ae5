//! A conformance and fault-injection harness for session stores.
#![forbid(unsafe_code)]

pub mod call;
pub mod citations;
pub mod cli;
pub mod corpus;
pub mod crash;
pub mod diagnose;
pub mod disk;
pub mod exit_code;
pub mod expectations;
pub mod fault;
pub mod generate;
pub mod glob;
pub mod hooks;
pub mod inject;
pub mod model;
pub mod outsider;
pub mod parallel;
pub mod promise;
pub mod protocol;
pub mod replay;
pub mod report;
pub mod requirement;
pub mod role;
pub mod runner;
pub mod scenario;
pub mod shard;
pub mod specimens;
pub mod stage;
pub mod stale;
pub mod subject;
pub mod suite;
pub mod tree_view;
pub mod workload;
pub mod world;

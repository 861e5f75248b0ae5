//! Explicit recovery against a table written by hand from the contract, under every fault, and beside live processes.

mod faults;
mod ground;
mod processes;
mod strays;
mod table;

//! The corpus is embedded: a file that is added to it makes the library be compiled again.

fn main() {
    for directory in ["../corpus/conformance", "../corpus/sessions"] {
        println!("cargo::rerun-if-changed={directory}");
    }
}

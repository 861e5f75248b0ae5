//! Keeps a chat in a session file and branches from its first message.
//!
//! `cargo run -p session-tree --example chat -- FILE` creates the file, or goes on with it.

use std::error::Error;
use std::path::Path;

use session_tree::{Code, Message, Store};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: chat FILE")?;
    let store = open(Path::new(&path))?;
    let tree = store.tree();
    let number = store.entries().len() + 1;

    let question = tree.append(Message::user(format!("m-{number}"), "what does the failing test expect?"))?;
    tree.append(Message::user(format!("m-{}", number + 1), "and what does it get?"))?;
    tree.move_to(Some(question.id()))?;
    tree.append(Message::user(format!("m-{}", number + 2), "show me the test instead"))?;

    println!("{} entries, of which the active path holds:", store.entries().len());
    for entry in tree.active_entries() {
        println!("  {} {}", entry.id(), entry.message().to_json());
    }
    Ok(())
}

fn open(path: &Path) -> session_tree::Result<Store> {
    match Store::create(path) {
        Err(error) if error.code() == Code::AlreadyExists => Store::load(path),
        answer => answer,
    }
}

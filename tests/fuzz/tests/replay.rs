//! Every target over its seeds, its corpus and mutations of both.

use penstock_fuzz::mutate::{Draw, mutate};
use penstock_fuzz::{TARGETS, Target, node, target};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// The files of a folder in the order of their names.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("a file")))
        .collect();
    files.sort();
    files
}

/// Says which input it was that failed.
fn run(target: &Target, what: &str, bytes: &[u8]) {
    let outcome = std::panic::catch_unwind(|| (target.run)(bytes));
    if let Err(panic) = outcome {
        eprintln!("{} fails on {what}: {}", target.name, bytes.escape_ascii());
        std::panic::resume_unwind(panic);
    }
}

fn replay(name: &str) {
    let _node = node::hold();
    let target = target(name).expect("a target of this name");
    let mut inputs = (target.seeds)();
    assert!(inputs.len() > 5, "{name} has seeds");
    for (number, seed) in inputs.iter().enumerate() {
        run(target, &format!("seed {number}"), seed);
    }
    for (file, bytes) in files(&corpus(name)) {
        run(target, &file, &bytes);
        inputs.push(bytes);
    }
    let mut draw = Draw(1);
    for number in 0..target.mutations {
        let mut bytes = inputs[draw.below(inputs.len())].clone();
        mutate(&mut bytes, &inputs, &mut draw);
        run(target, &format!("mutation {number}"), &bytes);
    }
}

#[test]
fn fsm_apply() {
    replay("fsm_apply");
}

#[test]
fn http_body() {
    replay("http_body");
}

#[test]
fn json_rpc() {
    replay("json_rpc");
}

#[test]
fn plugin_admission() {
    replay("plugin_admission");
}

#[test]
fn plugin_frame() {
    replay("plugin_frame");
}

#[test]
fn store_recovery() {
    replay("store_recovery");
}

#[test]
fn websocket() {
    replay("websocket");
}

#[test]
fn wkproto() {
    replay("wkproto");
}

/// Bytes of all corpora together that the repository takes.
const CORPUS_BYTES_MAX: usize = 300 * 1024;

#[test]
fn every_corpus_belongs_to_a_target_and_they_are_small() {
    let folders = fs::read_dir(corpus("")).expect("the corpora are there");
    let folders: BTreeSet<String> = folders
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(folders, names);
    let sizes = names
        .iter()
        .flat_map(|name| files(&corpus(name)))
        .map(|(_, bytes)| bytes.len());
    assert!(sizes.sum::<usize>() < CORPUS_BYTES_MAX);
}

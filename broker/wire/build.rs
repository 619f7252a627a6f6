//! Generates the types of `proto/storage/v1`: what stands on disk and in Raft logs.

fn main() -> std::io::Result<()> {
    const FOLDER: &str = "../../proto/storage/v1";
    let names = ["command", "message", "raft", "row"];
    let files: Vec<String> = names
        .iter()
        .map(|name| format!("{FOLDER}/{name}.proto"))
        .collect();
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut config = prost_build::Config::new();
    config.bytes(["."]);
    config.btree_map(["."]);
    config.compile_protos(&files, &[FOLDER])
}

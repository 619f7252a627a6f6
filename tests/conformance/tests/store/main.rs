//! The store's contract, over the simulated disk and over RocksDB.

mod crash;
mod directory;
mod make;
mod model;
mod subject;
mod suite;

use subject::{Real, Simulated, Subject};

#[test]
fn the_simulated_disk_passes_the_suite() {
    suite::suite(Simulated::new);
}

#[test]
fn the_store_passes_the_suite() {
    suite::suite(Real::new);
}

#[test]
fn the_simulated_disk_equals_the_model() {
    for seed in 0..20 {
        model::compare(Simulated::new(), seed, 400);
    }
}

#[test]
fn the_store_equals_the_model() {
    for seed in 0..4 {
        model::compare(Real::new(), seed, 450);
    }
}

#[test]
fn a_poisoned_disk_refuses() {
    use penstock_core::rows::Instance;
    let mut disk = penstock_sim::disk::SimDisk::new(penstock_core::types::DiskBoot(1));
    disk.set_full(true);
    let mut subject = Simulated::over(disk);
    let writes = [make::put(make::node("a"), "1")];
    assert!(subject.write(Instance::Data, &writes).is_err());
    assert!(subject.write(Instance::Data, &writes).is_err());
    assert!(subject.sync(Instance::Data).is_err() && subject.sync(Instance::Meta).is_err());
}

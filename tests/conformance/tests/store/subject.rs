//! What the suite needs of a store, over both implementations.

use penstock_core::rows::{GroupImage, Instance, Key, Page, ReadRequest, Row, Rows, Write};
use penstock_core::types::{DiskBoot, GroupId, NodeId, Ticket};
use penstock_sim::disk::{Misses, SimDisk};
use penstock_store::{Options, Recovered, Store};
use tempfile::TempDir;

/// A store under test.
pub(crate) trait Subject {
    fn write(&mut self, instance: Instance, writes: &[Write]) -> Result<(), String>;
    fn sync(&mut self, instance: Instance) -> Result<(), String>;
    /// A point read without misses.
    fn row(&self, key: &Key) -> Option<Row>;
    fn read(&self, request: &ReadRequest) -> Page;
    fn groups(&self) -> Vec<GroupId>;
    fn group_image(&self, group: GroupId) -> GroupImage;
    /// Stops after a sync of everything, and starts again.
    fn restart(&mut self);
}

pub(crate) struct Simulated {
    disk: SimDisk,
    ticket: u64,
}

impl Simulated {
    pub(crate) fn new() -> Simulated {
        Simulated::over(SimDisk::new(DiskBoot(1)))
    }

    pub(crate) fn over(disk: SimDisk) -> Simulated {
        Simulated { disk, ticket: 0 }
    }
}

impl Subject for Simulated {
    fn write(&mut self, instance: Instance, writes: &[Write]) -> Result<(), String> {
        self.ticket += 1;
        self.disk
            .write(instance, 0, Ticket(self.ticket), writes)
            .map_err(|error| error.to_string())
    }

    fn sync(&mut self, instance: Instance) -> Result<(), String> {
        self.disk
            .sync(instance)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn row(&self, key: &Key) -> Option<Row> {
        self.disk.rows(Misses::default()).row(key).expect("no misses")
    }

    fn read(&self, request: &ReadRequest) -> Page {
        self.disk.read(request)
    }

    fn groups(&self) -> Vec<GroupId> {
        self.disk.groups()
    }

    fn group_image(&self, group: GroupId) -> GroupImage {
        self.disk.group_image(group)
    }

    fn restart(&mut self) {
        for instance in [Instance::Meta, Instance::Data] {
            self.sync(instance).expect("synced");
        }
        self.disk.crash(|_, _| 0);
    }
}

pub(crate) struct Real {
    directory: TempDir,
    store: Option<Store>,
}

impl Real {
    pub(crate) fn new() -> Real {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, recovered) = Store::open(directory.path(), options()).expect("opened");
        assert_eq!(recovered, Recovered::New { disk: DiskBoot(1) });
        Real {
            directory,
            store: Some(store),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("open")
    }
}

/// Settings for tests: a small machine, no reserve to be written each time.
pub(crate) fn options() -> Options {
    let mut options = Options::new("test", NodeId(1), DiskBoot(1));
    options.reserve_bytes = 0;
    options.meta_cache_bytes = 4 << 20;
    options.data_cache_bytes = 4 << 20;
    options.memtable_bytes = 4 << 20;
    options.low_space_bytes = 0;
    options
}

impl Subject for Real {
    fn write(&mut self, instance: Instance, writes: &[Write]) -> Result<(), String> {
        let written = self.store().write(instance, writes);
        written.map(drop).map_err(|error| error.to_string())
    }

    fn sync(&mut self, instance: Instance) -> Result<(), String> {
        self.store().sync(instance).map_err(|error| error.to_string())
    }

    fn row(&self, key: &Key) -> Option<Row> {
        let loaded = self.store().load(std::slice::from_ref(key)).expect("loaded");
        let pinned = [key.clone()];
        let cached = self
            .store()
            .rows(&pinned)
            .row(key)
            .expect("loaded rows are there");
        assert_eq!(
            loaded,
            vec![(key.clone(), cached.clone())],
            "both ways to read agree"
        );
        cached
    }

    fn read(&self, request: &ReadRequest) -> Page {
        self.store().read(request)
    }

    fn groups(&self) -> Vec<GroupId> {
        self.store().groups().expect("groups")
    }

    fn group_image(&self, group: GroupId) -> GroupImage {
        self.store().group_image(group).expect("an image")
    }

    fn restart(&mut self) {
        drop(self.store.take());
        let mut options = options();
        options.new_disk = DiskBoot(99);
        let (store, recovered) = Store::open(self.directory.path(), options).expect("opened again");
        assert_eq!(recovered, Recovered::Intact { disk: DiskBoot(1) });
        self.store = Some(store);
    }
}

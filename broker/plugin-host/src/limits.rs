//! What one guest may use, and the store's watch over it.

use std::time::Duration;
use wasmtime::ResourceLimiter;

/// What one instance may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory, bytes.
    pub memory_bytes: usize,
    /// Elements of its tables.
    pub table_elements: usize,
    /// Bytes that one crossing of the border may carry.
    pub crossing_bytes: usize,
    /// Longest `init`.
    pub init_within: Duration,
    /// Calls after which it is replaced; drawn between 0.8 and 1.2 of this for each.
    pub calls_max: u32,
    /// Age at which it is replaced.
    pub age_max: Duration,
}

/// Core instances, memories and tables of one component. One of many empty memories would leave none to the others.
pub(crate) const INSTANCES_MAX: usize = 64;
pub(crate) const MEMORIES_MAX: usize = 4;
pub(crate) const TABLES_MAX: usize = 16;

/// Least and most memory that a manifest may ask for, MiB.
pub(crate) const MEMORY_MIB: std::ops::RangeInclusive<u32> = 1..=128;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 16 << 20,
            table_elements: 100_000,
            crossing_bytes: 2 << 20,
            init_within: Duration::from_secs(2),
            calls_max: 10_000,
            age_max: Duration::from_secs(600),
        }
    }
}

/// Watches the growth of one store.
#[derive(Debug)]
pub(crate) struct Watch {
    memory_max: usize,
    table_max: usize,
    /// Linear memory now, bytes.
    pub(crate) memory: usize,
    /// Set once something was refused: guests turn it into traps of every kind.
    pub(crate) refused: bool,
}

impl Watch {
    pub(crate) fn new(limits: &Limits) -> Watch {
        Watch {
            memory_max: limits.memory_bytes,
            table_max: limits.table_elements,
            memory: 0,
            refused: false,
        }
    }
}

impl ResourceLimiter for Watch {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let others = self.memory.saturating_sub(current);
        let wanted = others.saturating_add(desired);
        let allowed = wanted <= self.memory_max;
        if allowed {
            self.memory = wanted;
        } else {
            self.refused = true;
        }
        Ok(allowed)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let allowed = desired <= self.table_max;
        self.refused |= !allowed;
        Ok(allowed)
    }

    // The pool bounds these too; instances that are made on demand have nothing else.
    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }
}

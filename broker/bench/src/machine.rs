//! What this machine is, and what a process on it uses, as far as `/proc` tells.

use serde::Serialize;

/// `/proc/PID/stat` counts processor time in hundredths of a second on Linux (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The machine that ran the tool, and the server where the target is local.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// Processors.
    pub(crate) cpus: usize,
    /// Their model, where the system tells.
    pub(crate) model: Option<String>,
    /// Memory in bytes, where the system tells.
    pub(crate) memory_bytes: Option<u64>,
    /// The kernel, where the system tells.
    pub(crate) kernel: Option<String>,
    /// Load average of the last minute at the start: what else was going on.
    pub(crate) load_average: Option<f64>,
}

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Resident memory in bytes.
    pub(crate) rss_bytes: u64,
    /// Processor time in seconds since its start.
    pub(crate) cpu_s: f64,
}

impl Machine {
    /// This machine now.
    #[must_use]
    pub(crate) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg");
        Self {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model: field(&read("/proc/cpuinfo"), "model name"),
            memory_bytes: kibibytes(&read("/proc/meminfo"), "MemTotal"),
            kernel: read("/proc/sys/kernel/osrelease")
                .lines()
                .next()
                .map(str::to_owned),
            load_average: load.split(' ').next().and_then(|word| word.parse().ok()),
        }
    }
}

/// What this process uses; `None` when there is none, or the system does not tell.
#[must_use]
pub(crate) fn usage(pid: u32) -> Option<Usage> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(Usage {
        rss_bytes: kibibytes(&status, "VmRSS")?,
        cpu_s: processor_time(&stat)?,
    })
}

/// How many files this process may open, where the system tells.
#[must_use]
pub(crate) fn open_files_max() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = field(text, name)?;
    value
        .strip_suffix(" kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|count| count * 1_024)
}

/// The name of a process may contain anything, so fields are counted from the parenthesis that ends it.
fn processor_time(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11);
    let user: f64 = ticks.next()?.parse().ok()?;
    let system: f64 = ticks.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_what_the_system_tells() {
        let status = "Name:\tpenstock\nVmPeak:\t  9 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(kibibytes(status, "VmRSS"), Some(2_097_152));
        assert_eq!(kibibytes(status, "VmSwap"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 33 1 2";
        assert_eq!(processor_time(stat), Some(2.0));
        assert_eq!(processor_time("nonsense"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        if cfg!(target_os = "linux") {
            assert!(usage(std::process::id()).is_some_and(|usage| usage.rss_bytes > 0));
            assert!(open_files_max().is_some_and(|files| files > 0));
        }
        assert!(Machine::here().cpus > 0);
    }
}

//! What guests must not be able to do, in each way in which they are asked. Each fails with the class that operators look for, and
//! others go on. The table of `broker/docs/hostile.md` says the same.

use super::bombs::{Comes, bombs};
use super::guests::{ALLOW, FROM_DATA, filter};
use super::kinds::{KINDS, Kind};
use super::{Bench, WITHIN, before_send};
use penstock_core::hooks::call::{Failed, Returned, Version};
use penstock_core::hooks::pipeline::Failure;
use std::time::Duration;

/// Short for the guest, which loops until then; nothing is asserted of the time.
const SHORT: Duration = Duration::from_millis(50);
/// Each bomb goes off so often: the instance in which it did is replaced.
const TIMES: u64 = 2;
const PAGE: &str = include_str!("../../../docs/hostile.md");

/// A guest, and one that does no harm beside it.
struct Neighbours {
    bench: Bench,
    good: Version,
}

impl Neighbours {
    fn new() -> Neighbours {
        let bench = Bench::new();
        let good = bench.load("good", &filter("", ALLOW, &[])).expect("loads");
        Neighbours { bench, good }
    }

    /// Asks a guest, and then the other one. How the first one's calls ended.
    fn ask(&self, kind: &Kind, module: &[u8], within: Duration) -> (Version, Vec<Returned>) {
        let hostile = self.bench.load(kind.interface, module).expect("loads");
        let ask = |_| {
            let returned = self.bench.ask(&hostile, within, (kind.work)());
            self.bench.judge(&self.good, &["a"]).expect("others go on");
            returned
        };
        let ended = (0..TIMES).map(ask).collect();
        (hostile, ended)
    }

    fn lines(&self, version: &Version) -> String {
        let logs = self.bench.host.logs(version, 0);
        let texts: Vec<String> = logs.lines.into_iter().map(|line| line.text).collect();
        texts.join("\n")
    }

    /// What was counted of a guest's failures of this class.
    fn failures(&self, version: &Version, class: Failure) -> u64 {
        let all = self.bench.host.status().into_iter();
        let mut its = all.filter(|(loaded, _)| loaded == version);
        let (_, status) = its.next().expect("it is still loaded");
        status.failures.get(&class).copied().unwrap_or(0)
    }
}

/// Every bomb whose name begins so, in each way in which guests are asked.
fn go_off(name: &str) {
    let neighbours = Neighbours::new();
    let mut found = 0;
    for bomb in bombs().iter().filter(|bomb| bomb.name.starts_with(name)) {
        found += 1;
        for (kind, (comes, answers)) in KINDS.iter().zip(&bomb.cells) {
            for (answer, words) in answers {
                let about = format!("{} in {}: {answer:?} {words:?}", bomb.name, kind.interface);
                let within = if *comes == Comes::Fails(Failure::Timeout) {
                    SHORT
                } else {
                    WITHIN
                };
                let module = kind.guest(bomb.body, answer, words);
                let (version, ended) = neighbours.ask(kind, &module, within);
                let lines = neighbours.lines(&version);
                match comes {
                    Comes::Fails(class) => {
                        assert!(
                            ended.iter().all(|end| *end == Err(Failed::Call(*class))),
                            "{about}: {ended:?}"
                        );
                        assert_eq!(neighbours.failures(&version, *class), TIMES, "{about}");
                        assert!(lines.contains(bomb.says), "{about}: {lines}");
                    }
                    Comes::Harmless => assert!(
                        ended.iter().all(|end| !matches!(end, Err(Failed::Call(_)))),
                        "{about}: {ended:?}"
                    ),
                    Comes::Nothing => panic!("{about}: no answer is to be given"),
                }
                neighbours.bench.host.unload(&version);
            }
        }
    }
    assert!(found > 0, "no bomb is called {name}");
}

#[test]
fn a_guest_that_does_what_it_should() {
    let neighbours = Neighbours::new();
    for kind in &KINDS {
        let (_, ended) = neighbours.ask(kind, &kind.guest("", kind.right, &[]), WITHIN);
        assert!(ended.iter().all(Result::is_ok), "{}: {ended:?}", kind.interface);
    }
}

#[test]
fn a_trap() {
    go_off("a trap");
}

#[test]
fn an_endless_loop() {
    go_off("a loop without end");
}

#[test]
fn endless_recursion() {
    go_off("recursion without end");
}

#[test]
fn a_memory_bomb() {
    go_off("memory without end");
}

#[test]
fn what_the_host_is_given_is_none() {
    go_off("a line of the log");
    go_off("a level of the log");
}

#[test]
fn a_flood_of_lines() {
    go_off("10,000 lines");
    let neighbours = Neighbours::new();
    let mut all = bombs();
    all.retain(|bomb| bomb.name.starts_with("10,000 lines"));
    for kind in &KINDS {
        let module = kind.guest(all[0].body, kind.right, &[]);
        let (version, _) = neighbours.ask(kind, &module, WITHIN);
        let logs = neighbours.bench.host.logs(&version, 0);
        let kept = u64::try_from(logs.lines.len()).expect("few");
        assert_eq!(kept + logs.dropped, 10_000 * TIMES, "{}", kind.interface);
        assert!(kept <= 1_000 && logs.dropped > 0, "{}", kind.interface);
    }
}

#[test]
fn answers_that_lie_elsewhere() {
    go_off("an answer outside");
    go_off("an answer that is not aligned");
    go_off("a part of the answer outside");
    go_off("a place that wraps");
}

#[test]
fn parts_that_overlap() {
    go_off("parts that overlap");
}

#[test]
fn answers_of_any_size() {
    go_off("2 GiB");
    go_off("4 MiB");
    go_off("longer parts");
}

#[test]
fn answers_of_any_number() {
    go_off("100 million");
    go_off("a wrong number");
}

#[test]
fn answers_that_are_none() {
    go_off("no UTF-8");
    go_off("a value that");
}

#[test]
fn frames_that_are_none() {
    let entry = |entry: [u32; 10]| [&[1, 4, 10, 1][..], &entry[..]].concat();
    let cases = [
        vec![2, 4, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 3, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 10, u32::MAX, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, u32::MAX, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, u32::MAX, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        entry([3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        entry([1, 256, 0, 0, 0, 0, 0, 0, 0, 0]),
        entry([1, 0, 3, 3, 0, 0, 0, 0, 0, 0]),
        entry([1, 0, u32::MAX, u32::MAX, 0, 0, 0, 0, 0, 0]),
        entry([2, 0, 0, 0, 8, 0, 0, 0, 0, 0]),
        entry([2, 0, 0, 0, 1, 6, 1, 0, 0, 0]),
        entry([2, 0, 0, 0, 2, 0, 0, 0, 6, 0]),
    ];
    let bench = Bench::new();
    for words in cases {
        let version = bench
            .load("frame", &filter("", FROM_DATA, &words))
            .expect("loads");
        let returned = bench.ask(&version, WITHIN, before_send(&["a"]));
        assert_eq!(returned, Err(Failed::Call(Failure::BadOutput)), "{words:?}");
        bench.host.unload(&version);
    }
}

/// The lines of the page's table are those of the bombs here, and no bomb is without a test above.
#[test]
fn the_page_has_the_table() {
    let (_, section) = PAGE.split_once("## Hostile plugins\n").expect("the section");
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let mut rows = section.lines().filter(|line| line.starts_with('|'));
    let heads: Vec<&str> = KINDS.iter().map(|kind| kind.interface).collect();
    assert_eq!(
        rows.next(),
        Some(&*format!("| what a guest does | {} |", heads.join(" | ")))
    );
    assert_eq!(
        rows.next(),
        Some(&*format!("|---{}|", "|---".repeat(KINDS.len())))
    );
    let bombs = bombs();
    let wanted: Vec<String> = bombs
        .iter()
        .map(|bomb| {
            let cells: Vec<&str> = bomb
                .cells
                .iter()
                .map(|(comes, _)| match comes {
                    Comes::Fails(class) => class.name(),
                    Comes::Harmless => "harmless",
                    Comes::Nothing => "–",
                })
                .collect();
            format!("| {} | {} |", bomb.name, cells.join(" | "))
        })
        .collect();
    let found: Vec<&str> = rows.take(wanted.len()).collect();
    assert_eq!(found, wanted, "\n{}\n", wanted.join("\n"));
    let tests = include_str!("hostile.rs");
    let asked: Vec<&str> = tests
        .split("go_off(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    for bomb in &bombs {
        assert!(
            asked.iter().any(|name| bomb.name.starts_with(name)),
            "no test lets `{}` go off",
            bomb.name
        );
    }
}

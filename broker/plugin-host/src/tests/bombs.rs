//! What hostile guests do, and what comes of it: for each way in which they are asked, in the order of [`KINDS`].

use super::kinds::KINDS;
use penstock_core::hooks::pipeline::Failure;

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comes {
    /// The call fails in this class.
    Fails(Failure),
    /// It is an answer.
    Harmless,
    /// It cannot be done.
    Nothing,
}

/// The words of an answer, and those that stand elsewhere in the guest's memory.
pub(super) type Words = (Vec<u32>, Vec<u32>);

/// What a hostile guest does.
pub(super) struct Bomb {
    /// As the page has it.
    pub(super) name: &'static str,
    /// What it does before it answers.
    pub(super) body: &'static str,
    /// Part of what its log says then.
    pub(super) says: &'static str,
    /// What comes of it for each kind, and its answers, each in a guest of its own.
    pub(super) cells: Vec<(Comes, Vec<Words>)>,
}

impl Bomb {
    /// One that does this, whatever it is asked, and would answer well.
    fn act(name: &'static str, comes: Comes, body: &'static str, says: &'static str) -> Bomb {
        let right = |right: &'static [u32]| vec![words(right, &[])];
        let cells = KINDS.iter().map(|kind| (comes, right(kind.right)));
        Bomb {
            name,
            body,
            says,
            cells: cells.collect(),
        }
    }

    /// One that answers badly. A kind without an answer cannot.
    fn answer(name: &'static str, answers: [Vec<Words>; KINDS.len()]) -> Bomb {
        let of = |answers: Vec<Words>| {
            let comes = if answers.is_empty() {
                Comes::Nothing
            } else {
                Comes::Fails(Failure::BadOutput)
            };
            (comes, answers)
        };
        Bomb {
            name,
            body: "",
            says: "is not one",
            cells: answers.into_iter().map(of).collect(),
        }
    }
}

/// Beyond all memory, for whatever stands there.
const FAR: u32 = 0x7fff_fff0;
/// The same, and so far that its end is beyond the largest number.
const WRAPS: u32 = 0xffff_fff8;
const GIANT: u32 = 0x7fff_ffff;
const LARGE: u32 = 0x40_0000;
const MANY: u32 = 100_000_000;
/// An answer of `before-send` whose index is the 14 words at 2048, and whose arena is `spam!`.
const FRAME: [u32; 4] = [3_072, 5, 2_048, 14];
/// A request to `https://a/` with the body `spam!`.
const REQUEST: [u32; 8] = [3_088, 4, 3_096, 10, 2_048, 0, 3_072, 5];
/// A header, or an attribute.
const HEADER: [u32; 4] = [3_072, 4, 3_072, 5];

fn words(answer: &[u32], elsewhere: &[u32]) -> Words {
    (answer.to_vec(), elsewhere.to_vec())
}

fn one(answer: &[u32], elsewhere: &[u32]) -> Vec<Words> {
    vec![words(answer, elsewhere)]
}

/// The index of a frame of one verdict.
fn verdict(verdict: [u32; 10]) -> Vec<u32> {
    [&[1, 4, 10, 1][..], &verdict].concat()
}

/// All of them, in the order of the page.
pub(super) fn bombs() -> Vec<Bomb> {
    [acts(), places(), sizes(), numbers(), values()]
        .into_iter()
        .flatten()
        .collect()
}

fn acts() -> Vec<Bomb> {
    let bad = Comes::Fails(Failure::BadOutput);
    vec![
        Bomb::act(
            "a trap",
            Comes::Fails(Failure::Trap),
            "unreachable",
            "unreachable",
        ),
        Bomb::act(
            "a loop without end",
            Comes::Fails(Failure::Timeout),
            "(loop $ever (br $ever)) unreachable",
            "raise `deadline_ms`",
        ),
        Bomb::act(
            "recursion without end",
            Comes::Fails(Failure::Trap),
            "(call $deep)",
            "stack exhausted",
        ),
        Bomb::act(
            "memory without end",
            Comes::Fails(Failure::Memory),
            "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable",
            "raise `limits.memory_mib`",
        ),
        Bomb::act(
            "a line of the log of 2 GiB",
            bad,
            "(call $log (i32.const 3) (i32.const 0) (i32.const 0x7fffffff) (i32.const 0) (i32.const 0))",
            "is not one",
        ),
        Bomb::act(
            "a line of the log of 4 MiB",
            bad,
            "(drop (memory.grow (i32.const 80)))
             (call $log (i32.const 3) (i32.const 0) (i32.const 0x400000) (i32.const 0) (i32.const 0))",
            "more than 2 MiB",
        ),
        Bomb::act(
            "a level of the log that does not exist",
            bad,
            "(call $log (i32.const 77) (i32.const 3072) (i32.const 5) (i32.const 0) (i32.const 0))",
            "is not one",
        ),
        Bomb::act(
            "10,000 lines of the log",
            Comes::Harmless,
            "(local.set $left (i32.const 10000))
             (loop $more (call $log (i32.const 3) (i32.const 3072) (i32.const 5) (i32.const 0) (i32.const 0))
               (local.set $left (i32.sub (local.get $left) (i32.const 1))) (br_if $more (local.get $left)))",
            "spam!",
        ),
        Bomb::act(
            "an answer outside of its memory",
            bad,
            "(return (i32.const 0x7ffffff0))",
            "is not one",
        ),
        Bomb::act(
            "an answer that is not aligned",
            bad,
            "(return (i32.const 1025))",
            "is not one",
        ),
    ]
}

/// Answers of which a part lies here. Of `route` it is the body, of `webhook` the list of requests.
fn part_at(at: u32) -> [Vec<Words>; KINDS.len()] {
    [
        one(&[at, 9, 1_024, 0], &[]),
        one(&[at, 1], &[]),
        one(&[0, 1, at, 1], &[]),
        one(&[1, 0, 0, at, 9], &[]),
        one(&[0, at, 9, 0, 1_024, 0], &[]),
        one(&[200, 1_024, 0, at, 9], &[]),
        one(&[0, at, 1], &[]),
    ]
}

fn places() -> Vec<Bomb> {
    let twice = [HEADER, HEADER].concat();
    let mut overlap = Bomb::answer(
        "parts that overlap",
        [
            // The text of a refusal is the header of the index.
            one(&[2_048, 56, 2_048, 14], &verdict([1, 0, 0, 4, 0, 0, 0, 0, 0, 0])),
            one(&[2_048, 1], &[1, 0, 2_048, 8, 0, 0, 0, 0, 0]),
            // What went wrong is told by the answer itself.
            one(&[1, 0, 0, 1_024, 20], &[]),
            one(&[1, 0, 0, 1_024, 20], &[]),
            one(&[0, 3_072, 4, 0, 2_048, 2], &twice),
            one(&[200, 2_048, 2, 3_072, 5], &twice),
            one(&[0, 2_048, 2], &[REQUEST, REQUEST].concat()),
        ],
    );
    for (comes, _) in &mut overlap.cells {
        *comes = Comes::Harmless;
    }
    overlap.says = "";
    vec![
        Bomb::answer("a part of the answer outside of its memory", part_at(FAR)),
        Bomb::answer("a place that wraps around", part_at(WRAPS)),
        overlap,
    ]
}

/// Answers of which a part is so long, from 0 on.
fn part_of(bytes: u32) -> [Vec<Words>; KINDS.len()] {
    let mut request = REQUEST;
    request[7] = bytes;
    request[6] = 0;
    [
        one(&[0, bytes, 1_024, 0], &[]),
        one(&[2_048, 1], &[2, 1, 0, bytes, 0, 0, 0, 0, 0]),
        one(&[1, 0, 0, 0, bytes], &[]),
        one(&[1, 0, 0, 0, bytes], &[]),
        one(&[0, 0, bytes, 0, 1_024, 0], &[]),
        one(&[200, 1_024, 0, 0, bytes], &[]),
        one(&[0, 2_048, 1], &request),
    ]
}

fn sizes() -> Vec<Bomb> {
    let mut large = Bomb::answer("4 MiB in its answer", part_of(LARGE));
    large.body = "(drop (memory.grow (i32.const 80)))";
    large.says = "more than 2 MiB";
    let text = 1_025;
    let attribute = [3_072, 4, 4_096, 4_097];
    vec![
        Bomb::answer("2 GiB in its answer", part_of(GIANT)),
        large,
        Bomb::answer(
            "longer parts than are taken",
            [
                one(
                    &[4_096, 2_000, 2_048, 14],
                    &verdict([1, 0, 0, text, 0, 0, 0, 0, 0, 0]),
                ),
                one(&[2_048, 1], &[1, 0, 4_096, text, 0, 0, 0, 0, 0]),
                // Changes of keys that its manifest does not ask for.
                one(&[0, 1, 2_048, 1], &[0, 3_072, 4, 0, 2, 0, 0, 0, 0, 0]),
                Vec::new(),
                one(&[0, 3_072, 4, 0, 2_048, 1], &attribute),
                one(&[200, 2_048, 1, 3_072, 5], &[3_072, 4, 4_096, 8_193]),
                one(&[0, 2_048, 1], &[3_088, 4, 4_096, 4_097, 2_048, 0, 3_072, 5]),
            ],
        ),
    ]
}

fn numbers() -> Vec<Bomb> {
    let mut counted = verdict([0; 10]);
    counted[3] = MANY;
    let two = [&[1, 4, 10, 2][..], &[0; 20]].concat();
    vec![
        Bomb::answer(
            "100 million parts",
            [
                one(&FRAME, &counted),
                one(&[2_048, MANY], &[]),
                one(&[0, 1, 2_048, MANY], &[]),
                one(&[0, MANY], &[]),
                one(&[0, 3_072, 4, 0, 2_048, MANY], &[]),
                one(&[200, 2_048, MANY, 3_072, 5], &[]),
                one(&[0, 2_048, MANY], &[]),
            ],
        ),
        Bomb::answer(
            "a wrong number of parts",
            [
                vec![
                    words(&[3_072, 5, 2_048, 24], &two),
                    words(&[3_072, 5, 2_048, 4], &[1, 4, 10, 0]),
                ],
                vec![words(&[2_048, 2], &[0; 18]), words(&[2_048, 0], &[])],
                one(&[0, 2, 1_024, 0], &[]),
                one(&[0, 3], &[]),
                Vec::new(),
                one(&[200, 2_048, 33, 3_072, 5], &HEADER.repeat(33)),
                one(&[0, 2_048, 17], &REQUEST.repeat(17)),
            ],
        ),
    ]
}

fn values() -> Vec<Bomb> {
    let frame = [3_080, 4, 2_048, 14];
    vec![
        Bomb::answer(
            "no UTF-8",
            [
                one(&frame, &verdict([1, 0, 0, 4, 0, 0, 0, 0, 0, 0])),
                one(&[2_048, 1], &[1, 0, 3_080, 4, 0, 0, 0, 0, 0]),
                one(&[1, 0, 0, 3_080, 4], &[]),
                one(&[1, 0, 0, 3_080, 4], &[]),
                one(&[0, 3_080, 4, 0, 1_024, 0], &[]),
                one(&[200, 2_048, 1, 3_072, 5], &[3_072, 4, 3_080, 4]),
                one(&[0, 2_048, 1], &[3_088, 4, 3_080, 4, 2_048, 0, 3_072, 5]),
            ],
        ),
        Bomb::answer(
            "a value that does not exist",
            [
                one(&FRAME, &verdict([3, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
                one(&[2_048, 1], &[3, 0, 0, 0, 0, 0, 0, 0, 0]),
                vec![
                    words(&[2, 1, 1_024, 0], &[]),
                    words(&[1, 3, 0, 3_072, 5], &[]),
                    words(&[0, 1, 2_048, 1], &[0, 3_072, 4, 0, 3, 0, 0, 0, 0, 0]),
                ],
                vec![words(&[2, 1], &[]), words(&[1, 3, 0, 3_072, 5], &[])],
                vec![
                    words(&[2, 3_072, 4, 0, 1_024, 0], &[]),
                    words(&[0, 3_072, 4, 2, 1_024, 0], &[]),
                ],
                vec![
                    words(&[99, 1_024, 0, 1_024, 0], &[]),
                    words(&[600, 1_024, 0, 1_024, 0], &[]),
                ],
                vec![words(&[2, 1_024, 0], &[]), words(&[1, 3, 0, 3_072, 5], &[])],
            ],
        ),
    ]
}

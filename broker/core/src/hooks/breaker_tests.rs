use super::*;
use crate::hooks::call::Digest;
use std::sync::Arc;

fn version(byte: u8) -> Version {
    Version {
        binding: Arc::from("words"),
        digest: Digest([byte; 32]),
        generation: 1,
    }
}

fn at(ms: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(ms),
        wall_ms: 0,
    }
}

const BAD: Outcome = Outcome::Bad(Failure::Trap);

fn fresh() -> Breakers {
    Breakers::new(Faults::default())
}

/// Makes a call and ends it; whether it was made, and the state after it if that changed.
fn call(breakers: &mut Breakers, ms: u64, outcome: Outcome) -> (bool, Option<State>) {
    match breakers.admit(at(ms), &version(1)) {
        (Admission::Suspended, _) => (false, None),
        (Admission::Call(probe), begun) => {
            let ended = breakers.ended(at(ms), &version(1), (probe, None), outcome);
            (true, ended.or(begun).map(|change| change.state))
        }
    }
}

/// Fails until it opens, at this time.
fn open(breakers: &mut Breakers, ms: u64) {
    for _ in 1..FAILURES_MAX {
        assert_eq!(call(breakers, ms, BAD), (true, None));
    }
    assert_eq!(call(breakers, ms, BAD), (true, Some(State::Open)));
}

#[test]
fn five_failures_within_ten_seconds_open_it_and_slower_ones_do_not() {
    let breakers = &mut fresh();
    for at in [0, 2_500, 5_000, 7_500] {
        assert_eq!(call(breakers, at, BAD), (true, None));
    }
    // Good ones between them change nothing about that.
    assert_eq!(call(breakers, 7_600, Outcome::Good), (true, None));
    assert_eq!(call(breakers, 10_001, BAD), (true, None), "the first is too old");
    assert_eq!(call(breakers, 12_000, BAD), (true, Some(State::Open)));
    assert_eq!(call(breakers, 12_001, Outcome::Good), (false, None));
    assert_eq!(
        breakers.admit(at(12_001), &version(2)).0,
        Admission::Call(None),
        "another version is called"
    );
}

#[test]
fn half_of_the_last_twenty_open_it_however_slowly_they_come() {
    let breakers = &mut fresh();
    let mut opened = Vec::new();
    for number in 0..40 {
        let outcome = if number % 2 == 0 { BAD } else { Outcome::Good };
        if let (_, Some(state)) = call(breakers, number * 60_000, outcome) {
            opened.push((number, state));
            break;
        }
    }
    // The first call is a failure, so the twentieth is a good one, and a failure is needed to open.
    assert_eq!(opened, [(20, State::Open)]);
    let breakers = &mut fresh();
    for number in 0..100 {
        let outcome = if number % 3 == 0 { BAD } else { Outcome::Good };
        assert_eq!(
            call(breakers, number * 60_000, outcome),
            (true, None),
            "a third is borne"
        );
    }
}

#[test]
fn what_did_not_run_says_nothing() {
    let breakers = &mut fresh();
    for failure in [Failure::Busy, Failure::NotReady] {
        for _ in 0..50 {
            assert_eq!(call(breakers, 0, Outcome::of(failure)), (true, None));
        }
    }
    for failure in [
        Failure::Timeout,
        Failure::Memory,
        Failure::BadOutput,
        Failure::Host,
    ] {
        assert_eq!(call(breakers, 0, Outcome::of(failure)), (true, None));
    }
    assert_eq!(
        call(breakers, 0, Outcome::of(Failure::Trap)),
        (true, Some(State::Open))
    );
}

#[test]
fn one_probe_at_a_time_and_a_good_one_closes_it() {
    let breakers = &mut fresh();
    open(breakers, 0);
    assert_eq!(breakers.admit(at(999), &version(1)).0, Admission::Suspended);
    let (first, begun) = breakers.admit(at(1_000), &version(1));
    assert_eq!(begun.map(|change| change.state), Some(State::HalfOpen));
    assert_eq!(breakers.admit(at(1_000), &version(1)).0, Admission::Suspended);
    let Admission::Call(probe) = first else {
        panic!("a probe")
    };
    // A call from before says nothing; nor does a probe that did not run, and then the next one is asked.
    assert_eq!(
        breakers.ended(at(1_001), &version(1), (None, None), Outcome::Good),
        None
    );
    assert_eq!(
        breakers.ended(at(1_001), &version(1), (probe, None), Outcome::Untold),
        None
    );
    assert_eq!(call(breakers, 1_002, Outcome::Good), (true, Some(State::Closed)));
    for _ in 0..10 {
        assert_eq!(call(breakers, 1_003, Outcome::Good), (true, None));
    }
}

#[test]
fn pauses_double_up_to_a_minute_until_it_has_recovered() {
    let breakers = &mut fresh();
    open(breakers, 0);
    let mut now = 0;
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        assert_eq!(call(breakers, now + pause - 1, BAD), (false, None));
        now += pause;
        assert_eq!(call(breakers, now, BAD), (true, Some(State::Open)));
    }
    assert_eq!(
        call(breakers, now + 60_000, Outcome::Good),
        (true, Some(State::Closed))
    );
    // Closed for a moment is not recovered: it goes on where it was.
    now += 60_500;
    open(breakers, now);
    assert_eq!(call(breakers, now + 59_999, BAD), (false, None));
    now += 60_000;
    assert_eq!(call(breakers, now, Outcome::Good), (true, Some(State::Closed)));
    now += 10_001;
    open(breakers, now);
    assert_eq!(
        call(breakers, now + 1_000, Outcome::Good),
        (true, Some(State::Closed))
    );
}

#[test]
fn what_opens_three_times_without_recovering_is_given_up() {
    let breakers = &mut fresh();
    open(breakers, 0);
    assert_eq!(call(breakers, 1_000, BAD), (true, Some(State::Open)));
    let (Admission::Call(probe), Some(begun)) = breakers.admit(at(3_000), &version(1)) else {
        panic!("a probe")
    };
    assert!(!begun.is_given_up());
    let third = breakers
        .ended(at(3_000), &version(1), (probe, None), BAD)
        .expect("open");
    assert!(third.is_given_up() && third.cause == Failure::Trap && third.openings == GIVEN_UP_AFTER);
    let forgotten = breakers.keep(|version| *version != third.version);
    assert_eq!(
        forgotten.iter().map(|change| change.state).collect::<Vec<_>>(),
        [State::Closed]
    );
    assert!(!forgotten[0].is_given_up());
    // When it comes back, it is new; an end from before counts like any other.
    assert_eq!(breakers.ended(at(3_001), &version(1), (probe, None), BAD), None);
    assert_eq!(call(breakers, 3_002, Outcome::Good), (true, None));
}

#[test]
fn one_message_that_cannot_be_done_is_one_failure() {
    let breakers = &mut fresh();
    let head = |seq| Some((ChannelKey::new("g", crate::types::ChannelKind::GROUP), Seq(seq)));
    for attempt in 0..50 {
        assert_eq!(
            breakers.ended(at(attempt), &version(1), (None, head(7)), BAD),
            None
        );
    }
    for seq in [8, 9, 10] {
        assert_eq!(breakers.ended(at(60), &version(1), (None, head(seq)), BAD), None);
    }
    let fifth = breakers.ended(at(60), &version(1), (None, head(11)), BAD);
    assert_eq!(fifth.map(|change| change.state), Some(State::Open));
    // As a probe it says nothing either: another message has to be tried.
    let (Admission::Call(probe), _) = breakers.admit(at(1_100), &version(1)) else {
        panic!("a probe")
    };
    assert_eq!(
        breakers.ended(at(1_101), &version(1), (probe, head(7)), BAD),
        None
    );
    let (Admission::Call(probe), _) = breakers.admit(at(1_102), &version(1)) else {
        panic!("another probe")
    };
    let ended = breakers.ended(at(1_103), &version(1), (probe, head(12)), BAD);
    assert_eq!(ended.map(|change| change.openings), Some(2));
}

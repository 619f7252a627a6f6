//! Consumers that are tried for a time.

use super::*;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const TOTAL: Duration = Duration::from_secs(3_600);

fn patient() -> World {
    World::new(vec![Consumer {
        exact: true,
        attempts_max: None,
        patience: Some(Patience {
            first: FIRST,
            longest: LONGEST,
            total: TOTAL,
        }),
        ..consumer("a")
    }])
}

fn undelivered(token: Token, after: Option<Duration>) -> Input {
    let cause = Cause::Undelivered;
    let failure = Failure::Retry { after, cause };
    Input::Failed { token, failure }
}

/// Waits until the next attempt, which has to come within the longest pause and a little.
fn next_attempt(world: &mut World) -> (Token, u64, u64) {
    let due = world.cursors.next_deadline().expect("it pauses");
    let pause = due.saturating_sub(Duration::from_millis(world.millis));
    assert!(pause <= LONGEST, "{pause:?}");
    run(&world.wait(u64::try_from(pause.as_millis()).expect("small") + 1))
}

#[test]
fn a_window_comes_again_whole_for_the_whole_time_and_is_then_given_up_record_by_record() {
    let mut world = patient();
    let (mut token, first, last) = run(&world.lead(1, 1, 3));
    assert_eq!((first, last), (1, 3));
    world.commit(5);
    let mut attempts = 0;
    let out = loop {
        attempts += 1;
        assert!(attempts < 1_000, "it ends");
        let out = world.input(undelivered(token, None));
        if !out.is_empty() {
            break out;
        }
        let (next, first, last) = next_attempt(&mut world);
        assert_eq!((first, last), (1, 3), "what was committed meanwhile waits");
        token = next;
    };
    assert!(Duration::from_millis(world.millis) >= TOTAL);
    assert!(attempts > 60, "pauses stay below the longest: {attempts}");
    let letter = buried(&out);
    assert!(matches!(
        out[0],
        Output::DeadLetter(GivenUp {
            seq: Seq(1),
            cause: Cause::Undelivered,
            ..
        })
    ));
    let (token, first, last) = run(&world.input(done(letter, 1)));
    assert_eq!((first, last), (2, 3), "each record has one more attempt");
    let out = world.input(undelivered(token, None));
    let letter = buried(&out);
    let (token, first, last) = run(&world.input(done(letter, 2)));
    assert_eq!((first, last), (3, 3));
    let (token, first, last) = run(&world.input(done(token, 3)));
    assert_eq!((first, last), (4, 5));
    assert_eq!(
        world.input(undelivered(token, None)),
        vec![],
        "the time begins anew"
    );
}

#[test]
fn a_young_record_is_not_given_up_for_an_old_outage() {
    let mut world = patient();
    let (mut token, ..) = run(&world.lead(1, 1, 1));
    let out = loop {
        let out = world.input(undelivered(token, None));
        if !out.is_empty() {
            break out;
        }
        token = next_attempt(&mut world).0;
    };
    let letter = buried(&out);
    // A record is stamped when it is made.
    let stamp_ms = world.millis;
    world.grow(2);
    world.log[1].stamp_ms = stamp_ms;
    world.input(done(letter, 1));
    let (token, first, _) = run(&world.commit(2));
    assert_eq!(first, 2);
    assert_eq!(
        world.input(undelivered(token, None)),
        vec![],
        "it waits for its own time"
    );
}

#[test]
fn a_pause_that_the_endpoint_wants_is_kept_and_one_without_an_attempt_counts_as_time_alone() {
    let mut world = patient();
    let (token, ..) = run(&world.lead(1, 1, 1));
    let wished = Duration::from_secs(20);
    world.input(undelivered(token, Some(wished)));
    let due = world.cursors.next_deadline().expect("it pauses");
    assert!((wished..=wished + wished / 10).contains(&due), "{due:?}");
    let (mut token, ..) = next_attempt(&mut world);
    let out = loop {
        let after = Duration::from_secs(30);
        let failure = Failure::Later { after };
        let out = world.input(Input::Failed { token, failure });
        if !out.is_empty() {
            break out;
        }
        let pause = world.cursors.next_deadline().expect("it pauses") - Duration::from_millis(world.millis);
        assert!((after..=after + after / 10).contains(&pause), "{pause:?}");
        token = next_attempt(&mut world).0;
    };
    assert!(matches!(out[0], Output::DeadLetter(GivenUp { attempts: 1, .. })));
    assert!(Duration::from_millis(world.millis) >= TOTAL);
}

#[test]
fn who_has_no_time_for_the_whole_time_is_not_asked_any_more() {
    let mut world = patient();
    let (mut token, ..) = run(&world.lead(1, 1, 2));
    let out = loop {
        let failure = Failure::Busy { after: None };
        let out = world.input(Input::Failed { token, failure });
        if !out.is_empty() {
            break out;
        }
        let (next, first, last) = next_attempt(&mut world);
        assert_eq!((first, last), (1, 2));
        token = next;
    };
    assert!(
        matches!(
            out[0],
            Output::DeadLetter(GivenUp {
                attempts: 0,
                cause: Cause::Asked,
                ..
            })
        ),
        "{out:?}"
    );
    assert!(Duration::from_millis(world.millis) >= TOTAL);
}

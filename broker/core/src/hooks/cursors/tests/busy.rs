//! Consumers that have no time for what they are handed.

use super::*;

fn busy(token: Token, after: Option<Duration>) -> Input {
    let failure = Failure::Busy { after };
    Input::Failed { token, failure }
}

/// Waits until the next attempt. The pause, the run's token, and its bounds.
fn next_attempt(world: &mut World) -> (Duration, Token, (u64, u64)) {
    let due = world.cursors.next_deadline().expect("it pauses");
    let pause = due - Duration::from_millis(world.millis);
    let (token, first, last) = run(&world.wait(u64::try_from(pause.as_millis()).expect("small")));
    (pause, token, (first, last))
}

#[test]
fn who_has_no_time_is_asked_again_and_that_is_no_attempt() {
    let mut world = World::new(vec![consumer("a")]);
    let (mut token, ..) = run(&world.lead(1, 1, 2));
    for round in 0..20 {
        assert_eq!(world.input(busy(token, None)), vec![]);
        let (pause, next, bounds) = next_attempt(&mut world);
        let doubled = Duration::from_millis(100 << round);
        assert_eq!(pause, doubled.min(Duration::from_secs(30)));
        assert_eq!(bounds, (1, 2), "it comes whole");
        token = next;
    }
    let wished = Duration::from_secs(7);
    world.input(busy(token, Some(wished)));
    let (pause, mut token, _) = next_attempt(&mut world);
    assert_eq!(pause, wished);
    // Failures count as ever: of three the last one gives it up.
    for _ in 0..2 {
        assert_eq!(world.input(retry(token)), vec![]);
        token = next_attempt(&mut world).1;
        assert_eq!(world.input(busy(token, None)), vec![]);
        token = next_attempt(&mut world).1;
    }
    let out = world.input(retry(token));
    assert!(
        matches!(out[0], Output::DeadLetter(GivenUp { attempts: 3, .. })),
        "{out:?}"
    );
    // What is done begins anew.
    let letter = buried(&out);
    let (token, ..) = run(&world.input(done(letter, 1)));
    world.input(busy(token, None));
    assert_eq!(next_attempt(&mut world).0, Duration::from_millis(100));
}

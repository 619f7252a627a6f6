use super::*;

fn parse(line: &str) -> Result<Command, Error> {
    Command::parse(line.split_whitespace().map(str::to_owned))
}

fn driven(line: &str) -> Options {
    match parse(line) {
        Ok(Command::Drive(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> String {
    parse(line).expect_err(line).to_string()
}

#[test]
fn what_is_not_said_has_a_default() {
    let options = driven("--target wkproto://127.0.0.1:5100 --mode person");
    assert_eq!(options.target.transport, Transport::Tcp);
    assert_eq!(options.target.address, "127.0.0.1:5100");
    assert_eq!(
        (options.connections, options.payload, options.rate),
        (200, 100, None)
    );
    assert_eq!(options.duration, Duration::from_secs(15));
    assert_eq!(options.users, Users::New("any".to_owned()));
}

#[test]
fn traffic_beside_a_storm_has_a_rate() {
    let storm = "--target tcp://h:1 --mode login";
    assert_eq!(driven(storm).rate, None);
    assert_eq!(driven(&format!("{storm} --background 4")).rate, Some(1_000));
    assert_eq!(driven(&format!("{storm} --background 4 --rate 7")).rate, Some(7));
}

#[test]
fn values_are_taken_in_both_forms() {
    let options = driven(
        "--target=ws://h:1/path --mode group --groups 3 --members=4 --api http://h:2 --api-key k --duration 500ms --rate 7",
    );
    assert_eq!(options.target.transport, Transport::WebSocket);
    assert_eq!(options.target.address, "h:1");
    assert_eq!((options.groups, options.members, options.connections), (3, 4, 12));
    assert_eq!(options.duration, Duration::from_millis(500));
    assert_eq!(options.rate, Some(7));
    assert_eq!(
        parse("floor --directory d"),
        Ok(Command::Floor(FloorOptions {
            json: None,
            directory: Some(PathBuf::from("d"))
        }))
    );
    assert_eq!(parse("--help"), Ok(Command::Help));
}

#[test]
fn what_does_not_fit_is_refused_with_advice() {
    let person = "--target tcp://h:1 --mode person";
    for (line, advice) in [
        ("--mode person".to_owned(), "`--target` is needed"),
        (
            "--target http://h:1 --mode person".to_owned(),
            "wkproto://HOST:PORT",
        ),
        ("--target tcp://h --mode person".to_owned(), "tcp://HOST:PORT"),
        (
            "--target tcp://h:1 --mode persons".to_owned(),
            "person, group, fanout, idle or login",
        ),
        (format!("{person} --conections 3"), "no option `--conections`"),
        (format!("{person} --connections"), "needs a value"),
        (format!("{person} --rate --payload 100"), "`--rate` needs a value"),
        (format!("{person} --connections 3"), "make `--connections` even"),
        (format!("{person} --connections 0"), "a number from 1 to"),
        (format!("{person} --payload 8"), "a number from 32"),
        (format!("{person} --duration 15"), "500ms, 15s or 2m"),
        (format!("{person} --rate 5 --window 5"), "leave one out"),
        (format!("{person} --rate 5 --rate 6"), "given twice"),
        (format!("{person} --groups 2"), "no meaning in person mode"),
        (format!("{person} --floor f"), "add `--html FILE`"),
        (format!("{person} --token a --tokens b"), "leave out `--token`"),
        ("--target tcp://h:1 --mode group".to_owned(), "`--api` is needed"),
        (
            "--target tcp://h:1 --mode group --api https://h".to_owned(),
            "http://HOST:PORT",
        ),
        (
            "--target tcp://h:1 --mode group --connections 30".to_owned(),
            "only 10 places",
        ),
        (
            "--target tcp://h:1 --mode group --connections 5".to_owned(),
            "needs as many",
        ),
        (
            "--target tcp://h:1 --mode login --rate 5".to_owned(),
            "add `--background N`",
        ),
        ("floor --mode person".to_owned(), "no option `--mode`"),
    ] {
        let text = refused(&line);
        assert!(text.contains(advice), "{line}: {text}");
    }
}

#[test]
fn usage_and_manual_name_every_option() {
    let manual = include_str!("../../../docs/bench.md");
    for name in OPTIONS.iter().map(|(name, _)| name).chain(FLOOR_OPTIONS) {
        assert!(USAGE.contains(name), "the usage lacks {name}");
        assert!(manual.contains(&format!("`{name}")), "the manual lacks {name}");
    }
    for (mode, _) in Mode::NAMES {
        assert!(manual.contains(&format!("`{mode}`")), "the manual lacks {mode}");
    }
}

//! `penstock plugin replay`: which of the three it is.

use crate::arguments::Options;
use crate::{operate, trial};
use anyhow::{Result, bail};
use std::io::Write;

/// A capture or a range of a channel here, or a range for a webhook of the broker.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    match kind(options)? {
        Kind::Capture => trial::replay_capture(options, out),
        Kind::Range => trial::replay_range(options, out),
        Kind::Delivery => operate::replay(options, out),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A captured input, in the folder's component.
    Capture,
    /// Messages of a channel, in the folder's component.
    Range,
    /// Messages of a channel, once more by the broker's webhook.
    Delivery,
}

fn kind(options: &Options) -> Result<Kind> {
    let says = |given: bool, name: &'static str| given.then_some(name);
    let of_range = [
        says(options.local, "--local"),
        says(options.channel.is_some(), "--channel"),
        says(options.kind.is_some(), "--type"),
        says(options.from.is_some(), "--from"),
        says(options.to.is_some(), "--to"),
        says(options.reader.is_some(), "--as"),
    ];
    let of_capture = [
        says(options.bind.is_some(), "--bind"),
        says(options.save.is_some(), "--save"),
    ];
    let here = [says(options.component.is_some(), "--component")];
    let of_reader = [says(options.reader.is_some(), "--as")];
    let (kind, others, what) = if options.capture.is_some() {
        let word = says(options.word.is_some(), "an id");
        let others = of_range.into_iter().chain([word]).flatten().next();
        (Kind::Capture, others, "a capture that is replayed (--capture)")
    } else if options.local {
        let word = says(options.word.is_some(), "an id");
        let others = of_capture.into_iter().chain([word]).flatten().next();
        (Kind::Range, others, "messages that are replayed here (--local)")
    } else {
        let others = of_capture
            .into_iter()
            .chain(here)
            .chain(of_reader)
            .flatten()
            .next();
        (
            Kind::Delivery,
            others,
            "messages that a webhook delivers once more; add --capture ID or --local",
        )
    };
    match others {
        Some(other) => bail!("{other} has no meaning for {what}"),
        None => Ok(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replayed_is_said_once() -> Result<()> {
        let capture = Options {
            capture: Some("1-2".to_owned()),
            save: Some("crash".to_owned()),
            ..Options::default()
        };
        assert_eq!(kind(&capture)?, Kind::Capture);
        let range = Options {
            local: true,
            from: Some(1),
            ..Options::default()
        };
        assert_eq!(kind(&range)?, Kind::Range);
        assert_eq!(kind(&Options::default())?, Kind::Delivery);
        for (wrong, named) in [
            (
                Options {
                    from: Some(1),
                    ..capture.clone()
                },
                "--from",
            ),
            (
                Options {
                    word: Some("b".to_owned()),
                    ..capture
                },
                "an id",
            ),
            (
                Options {
                    save: Some("x".to_owned()),
                    ..range
                },
                "--save",
            ),
            (
                Options {
                    reader: Some("ann".to_owned()),
                    ..Options::default()
                },
                "--as",
            ),
        ] {
            let refused = kind(&wrong).expect_err(named).to_string();
            assert!(refused.starts_with(named), "{refused}");
        }
        Ok(())
    }
}

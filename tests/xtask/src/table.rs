//! The table that a test run ends with.

use std::fmt::Write;
use std::time::Duration;

/// How one stage ended.
pub(crate) enum Outcome {
    /// Everything that it checks holds.
    Passed,
    /// It ran and something is wrong; the sentence says what.
    Failed(String),
    /// It did not run, because the machine is not ready or the whole run's time is over.
    NotRun(String),
    /// The caller left it out with `--only`.
    LeftOut,
}

/// One line of the table.
pub(crate) struct Row {
    pub(crate) stage: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) outcome: Outcome,
}

/// The table and its closing line. A stage that could not run counts as failed.
pub(crate) fn render(rows: &[Row], total: Duration) -> String {
    let mut text = String::from("\nstage      seconds  result\n");
    for row in rows {
        let result = match &row.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(why) => format!("FAILED: {}", first_line(why)),
            Outcome::NotRun(why) => format!("NOT RUN: {}", first_line(why)),
            Outcome::LeftOut => "left out by --only".to_owned(),
        };
        let _infallible = writeln!(
            text,
            "{:<9} {:>8.1}  {result}",
            row.stage,
            row.elapsed.as_secs_f64()
        );
    }
    let passed = rows
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Passed))
        .count();
    let failed = failed(rows);
    let _infallible = writeln!(
        text,
        "{:<9} {:>8.1}\n\n{passed} passed, {failed} failed",
        "all",
        total.as_secs_f64()
    );
    text
}

/// How many stages did not do what they should.
pub(crate) fn failed(rows: &[Row]) -> usize {
    rows.iter()
        .filter(|row| matches!(row.outcome, Outcome::Failed(_) | Outcome::NotRun(_)))
        .count()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_could_not_run_counts_as_failed() {
        let row = |stage, outcome| Row {
            stage,
            elapsed: Duration::from_millis(1_250),
            outcome,
        };
        let rows = [
            row("fmt", Outcome::Passed),
            row("sim", Outcome::Failed("seed 7\nmore".to_owned())),
            row("e2e", Outcome::NotRun("time is over".to_owned())),
            row("doc", Outcome::LeftOut),
        ];
        let text = render(&rows, Duration::from_secs(5));
        assert!(text.ends_with("1 passed, 2 failed\n"), "{text}");
        assert!(text.contains("sim            1.2  FAILED: seed 7\n"), "{text}");
    }
}

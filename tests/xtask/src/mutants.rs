//! Which planted bugs a run tries: a few, rotating by the commit, so that all have their turn.

/// How many planted bugs one run tries (M-22).
pub(crate) const TRIED_PER_RUN: usize = 6;

/// One planted bug, as `cargo sim --list-mutants` prints it: `name nodes seed_budget sentence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The name that `--mutant` takes.
    pub(crate) name: String,
    /// How many nodes its cluster has.
    pub(crate) nodes: u32,
    /// Within how many seeds it must be caught.
    pub(crate) seed_budget: u32,
}

/// Reads the list. An empty list is an error: a run that plants nothing proves nothing.
pub(crate) fn parse(list: &str) -> Result<Vec<Mutant>, String> {
    let mutants: Vec<Mutant> = list
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(parse_line)
        .collect::<Result<_, _>>()?;
    if mutants.is_empty() {
        Err("the simulator lists no planted bug".to_owned())
    } else {
        Ok(mutants)
    }
}

fn parse_line(line: &str) -> Result<Mutant, String> {
    let broken = || format!("not a line of the form `name nodes seed_budget sentence`: {line}");
    let mut words = line.split_whitespace();
    let name = words.next().ok_or_else(broken)?.to_owned();
    let nodes = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or_else(broken)?;
    let seed_budget = words
        .next()
        .and_then(|word| word.parse().ok())
        .filter(|&budget| budget > 0);
    let seed_budget = seed_budget.ok_or_else(broken)?;
    Ok(Mutant {
        name,
        nodes,
        seed_budget,
    })
}

/// The planted bugs whose turn it is at this commit: a window over the list that the commit's hash places.
pub(crate) fn choose(mutants: &[Mutant], commit: &str) -> Vec<Mutant> {
    let digits: String = commit.chars().take(12).collect();
    let start =
        usize::try_from(u64::from_str_radix(&digits, 16).unwrap_or(0)).unwrap_or(0) % mutants.len().max(1);
    mutants
        .iter()
        .cycle()
        .skip(start)
        .take(TRIED_PER_RUN.min(mutants.len()))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn reads_what_the_simulator_prints() {
        let list =
            "wiped-voter-votes 3 40 A wiped voter votes at once.\n\nnot-joint 5 200 Two sets, one quorum.\n";
        let mutants = parse(list).expect("two lines");
        assert_eq!(
            mutants[0],
            Mutant {
                name: "wiped-voter-votes".to_owned(),
                nodes: 3,
                seed_budget: 40
            }
        );
        assert_eq!(mutants[1].seed_budget, 200);
        assert!(parse("").is_err());
        assert!(parse("name three 40 Sentence.").is_err());
        assert!(parse("name 3 0 A budget of nothing.").is_err());
    }

    #[test]
    fn the_window_rotates_and_reaches_every_mutant() {
        let list: String = (0..20)
            .map(|index| format!("m{index} 3 10 Sentence.\n"))
            .collect();
        let mutants = parse(&list).expect("twenty lines");
        let mut seen = BTreeSet::new();
        for commit in 0..20u64 {
            let chosen = choose(&mutants, &format!("{commit:012x}ffff"));
            let names: BTreeSet<String> = chosen.into_iter().map(|mutant| mutant.name).collect();
            assert_eq!(names.len(), TRIED_PER_RUN);
            seen.extend(names);
        }
        assert_eq!(seen.len(), 20);
        assert_eq!(choose(&mutants[..3], "ab12").len(), 3);
    }
}

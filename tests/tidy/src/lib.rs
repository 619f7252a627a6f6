//! The house rules as ordinary tests over the text of the tree: who may import whom, how long a file and a function
//! may be, which words may not stand anywhere, that every cited rule id is defined, and that documents name only what
//! exists. Each check is a function from the tree to complaints; its own tests plant what it must find.

pub mod documents;
pub mod hostile;
pub mod layering;
pub mod promises;
pub mod purity;
pub mod quotes;
pub mod rules;
pub mod sizes;
pub mod tree;
pub mod words;

#[cfg(test)]
mod tests {
    use crate::tree::Tree;
    use crate::{documents, hostile, layering, promises, purity, quotes, rules, sizes, words};

    fn holds(complaints: Vec<String>) {
        assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    }

    #[test]
    fn crates_depend_only_downwards() {
        holds(layering::crates(&Tree::read()));
    }

    #[test]
    fn machines_do_not_import_each_other() {
        holds(layering::machines(&Tree::read()));
    }

    #[test]
    fn machines_introduce_themselves() {
        holds(layering::headings(&Tree::read()));
    }

    #[test]
    fn core_and_wire_reach_for_nothing_outside() {
        holds(purity::check(&Tree::read()));
    }

    #[test]
    fn public_items_must_be_documented() {
        holds(purity::documented(&Tree::read()));
    }

    #[test]
    fn files_and_functions_are_short() {
        holds(sizes::check(&Tree::read()));
    }

    #[test]
    fn no_banned_word_stands_anywhere() {
        holds(words::check(&Tree::read()));
    }

    #[test]
    fn every_cited_rule_is_defined() {
        holds(rules::check(&Tree::read()));
    }

    #[test]
    fn documents_name_only_what_exists() {
        holds(documents::check(&Tree::read()));
    }

    #[test]
    fn hostile_inputs_and_their_tests_agree() {
        holds(hostile::check(&Tree::read()));
    }

    #[test]
    fn routes_and_their_table_agree() {
        holds(promises::routes(&Tree::read()));
    }

    #[test]
    fn every_configuration_key_is_read() {
        holds(promises::keys(&Tree::read()));
    }

    #[test]
    fn the_troubleshooting_page_quotes_what_the_program_says() {
        holds(quotes::check(&Tree::read()));
    }

    #[test]
    fn no_environment_variable_is_read() {
        holds(promises::environment(&Tree::read()));
    }

    #[test]
    fn the_root_holds_only_what_belongs_there() {
        holds(documents::root(&Tree::read()));
    }
}

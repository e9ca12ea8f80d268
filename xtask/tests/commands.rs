//! The answers of the command line to mistyped words.

use std::process::{Command, Output};

fn xtask(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(words).output().expect("xtask is built")
}

#[test]
fn wrong_commands_get_one_sentence_and_status_2() {
    for words in [&[][..], &["nosuch"], &["tidy", "extra"], &["--fix"]] {
        let output = xtask(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_lists_all_commands() {
    let output = xtask(&["help"]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    for command in ["tidy", "readme", "setup", "ci", "demo", "run", "compare"] {
        assert!(said.contains(command), "{command} is not listed");
    }
}

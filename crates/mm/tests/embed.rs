//! The example, as a test: what people read first must work.

#[path = "../examples/embed.rs"]
mod embed;

#[test]
fn e5_the_example_runs_and_loses_nothing() {
    embed::main().expect("the board has memory enough");
}

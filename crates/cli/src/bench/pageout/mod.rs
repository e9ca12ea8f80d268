//! What it costs to write memory to swap and to bring it back (row D7).

// The command that shows these figures beside Quire's own is their only caller.
#[cfg_attr(
    not(test),
    expect(dead_code, unused_imports, reason = "only the bench's command calls it")
)]
pub(crate) mod host;

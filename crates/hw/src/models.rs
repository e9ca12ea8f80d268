//! Models of the memory orders of table words, under a model checker (loom): the content that a
//! thread wrote before it published a word is there for each thread that has seen the word.
//!
//! ```text
//!   one thread     writes the content ──► publishes a word
//!   another                               sees the word ──► reads the content: it is all there
//! ```

use std::sync::Arc;
use std::vec::Vec;

use loom::model;
use loom::thread;

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "words.rs"]
#[allow(dead_code, unreachable_pub)]
mod words;

use atomic::{AtomicU64, Ordering};
use words::{count_words, exchange, fill_words, load_word, load_words, store_word, store_words};

/// The content that is published, and two words of a table.
struct Scene {
    content: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Scene {
    fn write(&self) {
        self.content.store(1, Ordering::Relaxed);
    }

    /// The content is there if the word was `seen`.
    fn read(&self, seen: bool) {
        if seen {
            assert_eq!(self.content.load(Ordering::Relaxed), 1, "the word came before the content");
        }
    }
}

/// One thread writes the content and publishes it; the other says whether it has seen that.
fn published(publish: fn(&[AtomicU64]), sees: fn(&[AtomicU64]) -> bool) {
    model(move || {
        let words = (0..2).map(|_| AtomicU64::new(0)).collect();
        let scene = Arc::new(Scene { content: AtomicU64::new(0), words });
        let other = Arc::clone(&scene);
        let writer = thread::spawn(move || {
            other.write();
            publish(&other.words);
        });
        let seen = sees(&scene.words);
        scene.read(seen);
        writer.join().expect("no panic");
    });
}

fn loaded(words: &[AtomicU64]) -> bool {
    load_word(&words[1]) != 0
}

#[test]
fn loom_a_word_that_is_stored_follows_what_was_written_before() {
    published(|words| store_word(&words[1], 7), loaded);
}

#[test]
fn loom_each_word_that_is_filled_follows_what_was_written_before() {
    published(|words| fill_words(words, 7, 0), loaded);
    published(|words| fill_words(words, 7, 1), loaded);
}

#[test]
fn loom_each_of_several_words_follows_what_was_written_before() {
    published(|words| store_words(words, &[7, 8]), loaded);
}

#[test]
fn loom_a_word_that_is_exchanged_follows_what_was_written_before() {
    published(|words| assert_eq!(exchange(&words[1], 0, 7), Ok(())), loaded);
}

#[test]
fn loom_what_follows_words_that_were_counted_is_read_after_them() {
    published(|words| store_word(&words[0], 7), |words| count_words(&words[..1], 7, 0) == 1);
    published(|words| store_word(&words[0], 7), |words| count_words(&words[..1], 0, 0) == 0);
}

#[test]
fn loom_what_follows_words_that_were_loaded_is_read_after_them() {
    let sees = |words: &[AtomicU64]| {
        let mut copy = [0; 2];
        load_words(words, &mut copy);
        copy[1] != 0
    };
    published(|words| store_word(&words[1], 7), sees);
}

#[test]
fn loom_an_exchange_reads_after_the_word_whether_it_succeeds_or_not() {
    published(|words| store_word(&words[1], 7), |words| exchange(&words[1], 7, 8).is_ok());
    published(|words| store_word(&words[1], 7), |words| exchange(&words[1], 0, 8) == Err(7));
}

//! The terminal: keys become lines, signals and echo; writes go to the screen.
//!
//! ```text
//!   feed ──► signal? ──► edited line ──newline, EOF──► input, by lines ──► read
//!                │             │ echo                    (without ICANON: bytes at once)
//!                ▼             ▼
//!             Keys::signal   Screen::put ◄── newline becomes CR LF ◄── write
//! ```

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::call::{Caller, Halt, Outcome, Sink, Source, moved};
use super::poll::PollEvents;
use super::termios::Termios;
use crate::{Errno, Result, Waiters, Wake};

/// Where output goes. It must not call back into the console.
pub trait Screen: Send + Sync {
    /// Shows bytes.
    fn put(&self, bytes: &[u8]);
}

/// The receiver of keys that mean a signal.
pub trait Keys: Send + Sync {
    /// The foreground process group `group` is to get signal `number`, by Linux's numbers. Zero
    /// if no group was ever set. No lock of the console is held.
    fn signal(&self, group: u32, number: u8);
}

/// The most bytes of typed input that are kept; further bytes are lost.
const INPUT_MAX: usize = 4096;

const SIGINT: u8 = 2;
const SIGQUIT: u8 = 3;
const SIGTSTP: u8 = 20;

/// Rows, columns, and pixels in both directions, as `struct winsize`.
pub type WindowSize = [u16; 4];

struct State {
    termios: Termios,
    window: WindowSize,
    group: u32,
    /// The line that is being typed.
    edit: Vec<u8>,
    /// The bytes that can be read.
    input: VecDeque<u8>,
    /// The lengths of the lines in `input`; one that has none is an end of file.
    lines: VecDeque<usize>,
}

/// The terminal.
pub struct Console {
    state: SpinMutex<State>,
    waiters: Waiters,
    screen: Arc<dyn Screen>,
    keys: Arc<dyn Keys>,
}

impl Console {
    /// A terminal with nothing typed, of 24 rows and 80 columns.
    pub fn new(screen: Arc<dyn Screen>, keys: Arc<dyn Keys>) -> Self {
        let state = State {
            termios: Termios::new(),
            window: [24, 80, 0, 0],
            group: 0,
            edit: Vec::new(),
            input: VecDeque::new(),
            lines: VecDeque::new(),
        };
        Self { state: SpinMutex::new(state), waiters: Waiters::new(), screen, keys }
    }

    /// Takes typed bytes.
    pub fn feed(&self, bytes: &[u8]) {
        for &byte in bytes {
            let mut state = self.state.lock();
            let signal = state.key(byte, &*self.screen);
            let group = state.group;
            drop(state);
            if let Some(number) = signal {
                self.keys.signal(group, number);
            }
        }
        self.waiters.wake();
    }

    /// Reads at most `count` bytes, and of one line only when input is by lines. No bytes: end of
    /// file was typed.
    ///
    /// # Errors
    /// [`Halt::Blocked`] when nothing was typed, or [`Errno::EAGAIN`] if `nonblocking`; the sink's
    /// error, and nothing was read then.
    pub fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        if count == 0 {
            return Ok(0);
        }
        let mut state = self.state.lock();
        let Some(ready) = state.ready() else {
            if !state.is_canonical() && state.termios.chars[raw::VMIN as usize] == 0 {
                return Ok(0);
            }
            if nonblocking {
                return Err(Errno::EAGAIN.into());
            }
            self.waiters.add(who.wake)?;
            return Err(Halt::Blocked);
        };
        let count = count.min(ready);
        let (first, second) = state.input.as_slices();
        let split = count.min(first.len());
        sink.put(&first[..split])?;
        sink.put(&second[..count - split])?;
        state.consume(count);
        Ok(count)
    }

    /// Writes what the source has left to the screen.
    ///
    /// # Errors
    /// The source's, when it gave nothing.
    pub fn write(&self, source: &mut dyn Source) -> Result<usize> {
        let output = self.state.lock().termios.output;
        let lines = output & raw::OPOST != 0 && output & raw::ONLCR != 0;
        self.show(source, lines)
    }

    /// Writes to the kernel's log, which is on the same screen.
    ///
    /// # Errors
    /// The source's, when it gave nothing.
    pub fn log(&self, source: &mut dyn Source) -> Result<usize> {
        self.show(source, true)
    }

    fn show(&self, source: &mut dyn Source, lines: bool) -> Result<usize> {
        let mut bytes = [0; 256];
        let mut done = 0;
        while source.left() > 0 {
            match source.take(&mut bytes) {
                Ok(0) => break,
                Ok(count) => {
                    put_lines(&*self.screen, &bytes[..count], lines);
                    done += count;
                }
                Err(errno) => return moved(done, Some(errno)),
            }
        }
        Ok(done)
    }

    /// The settings.
    pub fn termios(&self) -> Termios {
        self.state.lock().termios
    }

    /// Changes the settings; `flush` drops typed bytes that were not read.
    pub fn set_termios(&self, termios: Termios, flush: bool) {
        let mut state = self.state.lock();
        if flush {
            state.flush();
        }
        let was_canonical = state.is_canonical();
        state.termios = termios;
        if was_canonical && !state.is_canonical() {
            // The bytes typed so far can be read at once now.
            state.end_line();
            state.lines.clear();
        } else if !was_canonical && state.is_canonical() && !state.input.is_empty() {
            let length = state.input.len();
            state.lines.clear();
            state.add_line(length);
        }
        drop(state);
        self.waiters.wake();
    }

    /// Drops typed bytes that were not read.
    pub fn flush(&self) {
        self.state.lock().flush();
    }

    /// The size of the window.
    pub fn window(&self) -> WindowSize {
        self.state.lock().window
    }

    /// Notes the size of the window.
    pub fn set_window(&self, window: WindowSize) {
        self.state.lock().window = window;
    }

    /// The foreground process group; zero if none was set.
    pub fn group(&self) -> u32 {
        self.state.lock().group
    }

    /// Sets the foreground process group.
    pub fn set_group(&self, group: u32) {
        self.state.lock().group = group;
    }

    /// Bytes that can be read now.
    pub fn available(&self) -> usize {
        self.state.lock().input.len()
    }

    /// The events now.
    pub fn readiness(&self) -> PollEvents {
        let mut events = PollEvents::OUT | PollEvents::WRNORM;
        let ready = self.state.lock().ready().is_some();
        events.set(PollEvents::IN | PollEvents::RDNORM, ready);
        events
    }

    /// Registers a waiter for input.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.waiters.add(who)
    }
}

impl State {
    fn has_local(&self, flag: u32) -> bool {
        self.termios.local & flag != 0
    }

    fn is_canonical(&self) -> bool {
        self.has_local(raw::ICANON)
    }

    /// Bytes that one read may have; `None` if it would wait.
    fn ready(&self) -> Option<usize> {
        if self.is_canonical() {
            return self.lines.front().copied();
        }
        Some(self.input.len()).filter(|&length| length > 0)
    }

    fn consume(&mut self, count: usize) {
        self.input.drain(..count);
        if !self.is_canonical() {
            return;
        }
        if let Some(line) = self.lines.front_mut() {
            *line -= count;
            if *line == 0 {
                self.lines.pop_front();
            }
        }
    }

    fn flush(&mut self) {
        self.edit.clear();
        self.input.clear();
        self.lines.clear();
    }

    /// Whether `byte` is the character with this meaning; zero turns a meaning off.
    fn means(&self, byte: u8, index: u32) -> bool {
        byte != 0 && self.termios.chars[index as usize] == byte
    }

    /// Takes one typed byte, and says which signal it means.
    fn key(&mut self, byte: u8, screen: &dyn Screen) -> Option<u8> {
        let byte = match byte {
            b'\r' if self.termios.input & raw::IGNCR != 0 => return None,
            b'\r' if self.termios.input & raw::ICRNL != 0 => b'\n',
            b'\n' if self.termios.input & raw::INLCR != 0 => b'\r',
            byte => byte,
        };
        if self.has_local(raw::ISIG)
            && let Some(number) = self.signal_of(byte)
        {
            self.echo(byte, screen);
            if !self.has_local(raw::NOFLSH) {
                self.flush();
            }
            return Some(number);
        }
        if self.is_canonical() {
            self.edit_key(byte, screen);
        } else if self.input.len() < INPUT_MAX && self.input.try_reserve(1).is_ok() {
            self.input.push_back(byte);
            self.echo(byte, screen);
        }
        None
    }

    fn signal_of(&self, byte: u8) -> Option<u8> {
        [(raw::VINTR, SIGINT), (raw::VQUIT, SIGQUIT), (raw::VSUSP, SIGTSTP)]
            .into_iter()
            .find(|&(index, _)| self.means(byte, index))
            .map(|(_, number)| number)
    }

    fn edit_key(&mut self, byte: u8, screen: &dyn Screen) {
        if self.means(byte, raw::VERASE) {
            self.erase(screen);
        } else if self.means(byte, raw::VKILL) {
            while self.erase(screen) {}
        } else if self.means(byte, raw::VWERASE) && self.has_local(raw::IEXTEN) {
            while self.edit.last() == Some(&b' ') && self.erase(screen) {}
            while self.edit.last().is_some_and(|&last| last != b' ') && self.erase(screen) {}
        } else if self.means(byte, raw::VEOF) {
            self.end_line();
        } else if self.has_room(byte) && self.edit.try_reserve(1).is_ok() {
            self.edit.push(byte);
            self.echo(byte, screen);
            if byte == b'\n' || self.means(byte, raw::VEOL) {
                self.end_line();
            }
        }
    }

    /// A newline always ends a line that was begun, or a full one could never be read.
    fn has_room(&self, byte: u8) -> bool {
        let is_end = byte == b'\n' && !self.edit.is_empty();
        self.input.len() + self.edit.len() < INPUT_MAX || is_end
    }

    /// Takes back the last character that was typed, and says whether there was one.
    fn erase(&mut self, screen: &dyn Screen) -> bool {
        let mut last = self.edit.pop();
        let Some(byte) = last else { return false };
        // The later bytes of a character in UTF-8 are 10xxxxxx.
        while self.termios.input & raw::IUTF8 != 0 && last.is_some_and(|it| it & 0xc0 == 0x80) {
            last = self.edit.pop();
        }
        if self.has_local(raw::ECHO) && self.has_local(raw::ECHOE) {
            let is_two = is_control(byte) && self.has_local(raw::ECHOCTL);
            screen.put(if is_two { b"\x08 \x08\x08 \x08" } else { b"\x08 \x08" });
        }
        true
    }

    /// Makes the typed line readable.
    fn end_line(&mut self) {
        let edit = core::mem::take(&mut self.edit);
        if self.input.try_reserve(edit.len()).is_ok() {
            self.input.extend(&edit);
            self.add_line(edit.len());
        }
    }

    fn add_line(&mut self, length: usize) {
        // Without memory for its length, the line is one with the next.
        if self.lines.len() < INPUT_MAX && self.lines.try_reserve(1).is_ok() {
            self.lines.push_back(length);
        } else if let Some(last) = self.lines.back_mut() {
            *last += length;
        }
    }

    fn echo(&self, byte: u8, screen: &dyn Screen) {
        let is_newline = byte == b'\n' && self.is_canonical() && self.has_local(raw::ECHONL);
        if !self.has_local(raw::ECHO) && !is_newline {
            return;
        }
        if is_control(byte) && self.has_local(raw::ECHOCTL) {
            screen.put(&[b'^', byte ^ 0x40]);
        } else {
            let output = self.termios.output;
            let lines = output & raw::OPOST != 0 && output & raw::ONLCR != 0;
            put_lines(screen, &[byte], lines);
        }
    }
}

fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\n' && byte != b'\t'
}

/// Shows bytes; with `lines`, a carriage return goes before each newline.
fn put_lines(screen: &dyn Screen, bytes: &[u8], lines: bool) {
    if !lines {
        return screen.put(bytes);
    }
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line.split_last() {
            Some((b'\n', text)) => {
                screen.put(text);
                screen.put(b"\r\n");
            }
            _ => screen.put(line),
        }
    }
}

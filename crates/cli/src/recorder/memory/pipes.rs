//! The trace as it comes: one pipe for each CPU, put in order by time.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::ring;
use super::seen::{Decoder, HELD_FILTER, SOURCES, Seen};
use crate::recorder::trace::Instance;
use crate::refused::Refused;

/// KiB for the events of one CPU.
const BUFFER: &str = "65536";

/// The events of a process tree. Dropping it ends the trace.
pub(super) struct Pipes {
    /// Before the instance, since fields are dropped in this order: the kernel removes no
    /// instance whose pipes are open.
    pipes: Vec<Pipe>,
    instance: Instance,
    decoder: Decoder,
    /// Read, and not yet given: from a time on at which other CPUs may have earlier ones.
    waiting: Vec<Seen>,
}

struct Pipe {
    file: File,
    buffer: Vec<u8>,
}

impl Pipes {
    /// Begins to trace these threads and all that they start.
    pub(super) fn new(place: &Path, threads: &[u32]) -> Result<Pipes> {
        let instance = Instance::new(place)?;
        let mut decoder = Decoder::default();
        for source in &SOURCES {
            let format = instance.get(&format!("events/{}/format", source.name));
            let known = format.is_ok_and(|format| decoder.add(source, &format));
            if known {
                instance.event(source.name)?;
            } else if source.needed {
                let name = source.name;
                let why = format!("the host's kernel has no event {name} to record memory from");
                return Err(Refused(why).into());
            }
        }
        let (event, filter) = HELD_FILTER;
        instance.set(&format!("events/{event}/filter"), filter)?;
        instance.set("buffer_size_kb", BUFFER)?;
        let threads: Vec<String> = threads.iter().map(u32::to_string).collect();
        instance.set("set_event_pid", &threads.join(" "))?;
        let sub_buffer = instance.get("events/header_page").ok().and_then(|text| size(&text));
        let mut pipes = Vec::new();
        for cpu in instance.cpus()? {
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(libc::O_NONBLOCK);
            let file = options.open(cpu.join("trace_pipe_raw"));
            let file = file.context("the trace of a CPU cannot be opened")?;
            pipes.push(Pipe { file, buffer: vec![0; sub_buffer.unwrap_or(4096)] });
        }
        instance.set("tracing_on", "1")?;
        Ok(Pipes { instance, decoder, pipes, waiting: Vec::new() })
    }

    /// No more events are recorded; [`drain`](Pipes::drain) still gives those that were.
    pub(super) fn stop(&self) -> Result<()> {
        self.instance.set("tracing_on", "0")
    }

    /// How many events the kernel had to drop.
    pub(super) fn lost(&self) -> Result<u64> {
        self.instance.lost()
    }

    /// Reads all that is there, and gives what happened before `until`, in order; how many events
    /// those are. All that happens before this call is in it or in an earlier one.
    pub(super) fn drain(&mut self, until: u64, mut each: impl FnMut(Seen)) -> Result<usize> {
        for pipe in &mut self.pipes {
            pipe.read(until, &self.decoder, &mut self.waiting)?;
        }
        // Stable: of one CPU, events of one moment keep their order.
        self.waiting.sort_by_key(|seen| seen.time);
        let ready = self.waiting.partition_point(|seen| seen.time < until);
        self.waiting.drain(..ready).for_each(&mut each);
        Ok(ready)
    }
}

impl Pipe {
    /// Reads until the pipe is empty, or is behind `until`.
    fn read(&mut self, until: u64, decoder: &Decoder, into: &mut Vec<Seen>) -> Result<()> {
        loop {
            let count = match self.file.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e).context("the trace of a CPU cannot be read"),
            };
            let mut last = 0;
            ring::records(&self.buffer[..count], |time, data| {
                last = time;
                into.extend(decoder.decode(time, data));
            });
            if last >= until {
                return Ok(());
            }
        }
    }
}

/// The bytes of a sub-buffer: offset and size of its data.
fn size(header: &str) -> Option<usize> {
    let line = header.lines().find(|line| line.contains("char data;"))?;
    let number = |key: &str| {
        let rest = &line[line.find(key)? + key.len()..];
        rest.split(';').next()?.parse::<usize>().ok()
    };
    Some(number("offset:")? + number("size:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_the_size_of_sub_buffers_is_read() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: char data;\toffset:16;\tsize:16368;\tsigned:0;\n";
        assert_eq!((size(text), size("")), (Some(16384), None));
    }
}

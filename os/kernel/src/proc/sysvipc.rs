//! `/proc/sysvipc`: the objects of System V.

use quire_linux::Result;
use quire_linux::files::{Caller, Text};

use crate::task::segments::{self, Segment};

/// `/proc/sysvipc/shm`.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn show(_: &(), _: &Caller<'_>, out: &mut Text) -> Result<()> {
    out.push(
        b"       key      shmid perms                  size  cpid  lpid nattch   uid   gid  ",
    )?;
    out.push(
        b"cuid  cgid      atime      dtime      ctime                   rss                  ",
    )?;
    out.push(b"swap\n")?;
    let mut done = Ok(());
    segments::each(|_, key, segment| {
        if done.is_ok() {
            done = row(out, key, segment);
        }
    });
    done
}

fn row(out: &mut Text, key: i32, segment: &Segment) -> Result<()> {
    let state = *segment.state.lock();
    out.print(format_args!(
        "{key:10} {:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} ",
        segment.id,
        state.mode,
        segment.bytes,
        segment.creator,
        state.last,
        segment.attachments(),
        state.uid,
        state.gid,
        segment.creator_uid,
        segment.creator_gid,
    ))?;
    let [attached, detached, changed] = [state.attached, state.detached, state.changed];
    out.print(format_args!("{attached:10} {detached:10} {changed:10} {:21} {:21}\n", 0, 0))
}

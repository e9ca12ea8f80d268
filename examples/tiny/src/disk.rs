//! Two disks in RAM, one with a file and one to swap to. A disk is a run of frames; it reads and
//! writes by the same copy that the library uses, so that none of this is unsafe.

use crate::*;

/// The numbers of the file and of the swap device: the order in which they are opened.
pub const FILE: FileId = FileId(0);
pub const SWAP: FileId = FileId(1);

/// The disks by the number of their file. Page `n` of a file is frame `n` of its disk.
pub static DISKS: Once<[FrameRun; 2]> = Once::new();

/// The disk of a file.
pub fn of(file: FileId) -> &'static FrameRun {
    &DISKS.get().expect("the disks are set up")[file.0 as usize]
}

/// Reads what a fault lacks. A kernel with a real device starts these reads, lets the thread sleep,
/// and calls `read_done` when the device has answered.
pub fn read(mut reads: Reads) -> Result<(), Error> {
    while let Some(read) = mm().files().next_read(&mut reads)? {
        let pages = read.pages();
        let from = FrameSpan::new(of(read.file()).start().add(pages.start), pages.count());
        let copied = mm().hardware().copy(read.frames(), 0, from);
        mm().files().read_done(read, copied.map_err(|_| ReadFailed));
    }
    Ok(())
}

/// Writes all dirty pages of a file to its disk.
pub fn write_back(file: FileId) {
    let mut pages = FilePages::new(0, of(file).count());
    while let Ok(Some(write)) = mm().files().next_write(file, &mut pages, &PROCESSES) {
        let copied = mm().hardware().copy(of(file), write.pages().start, write.frames());
        mm().files().write_done(write, copied.map_err(|_| WriteFailed));
    }
}

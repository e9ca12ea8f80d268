//! Calls on files. Nothing is behind a file: its pages have any content.

use quire::cache::{FileId, FilePages, Pattern, Readahead, Reads, Store};
use quire::space::{AreaFlags, Backing, Request};
use quire::units::{Access, Asid, Order, PageSpan, Prot};
use quire::{Need, Stop};

use crate::paint::Paint;
use crate::{FAULT, FILES_CHANGE, LONG, Memory, Space, WINDOW};

const PAGES: u64 = 1024;

/// "Reads" what a call lacks.
pub fn read(mm: &Memory, mut reads: Reads) {
    while let Some(read) = mm.files().next_read(&mut reads).expect("memory") {
        mm.files().read_done(read, Ok(()));
    }
}

/// "Writes" all dirty pages of a file.
pub fn write(mm: &Memory, file: FileId, spaces: &[&Space]) {
    let mut pages = FilePages::new(0, 1 << 14);
    while let Ok(Some(write)) = mm.files().next_write(file, &mut pages, spaces) {
        mm.files().write_done(write, Ok(()));
    }
}

fn touch(mm: &Memory, space: &Space, span: PageSpan, access: Access) {
    for at in 0..span.count() {
        while let Err(stop) = mm.fault(space, span.start.add(at), access) {
            let Stop::Need(Need::Read(reads)) = stop else { panic!("{stop}") };
            read(mm, reads);
        }
    }
}

/// Measures them all.
pub fn measure(mm: &Memory, paint: &mut Paint) {
    let mut place = None;
    let root = crate::anon::root(mm);
    let space = &*mm.space_in(&mut place, root, Asid(3), WINDOW).expect("sound");
    let all = [space];
    let spaces = &all[..];
    let mut file = FileId(0);
    paint.measure("open", FAULT, || {
        file = mm.files().open(Store::ReadWrite, PAGES, Order::ZERO).expect("a free file");
    });
    let shown = Request::anon(PAGES).backing(Backing::File { id: file, page: 0 });
    let shared = mm.map(space, &shown.flags(AreaFlags::SHARED)).expect("there is room");
    let own = mm.map(space, &shown).expect("there is room");
    let code = mm.map(space, &shown.prot(Prot::READ | Prot::EXEC)).expect("there is room");
    let mut reads = None;
    paint.measure("fault: a page to be read", FAULT, || {
        if let Err(Stop::Need(Need::Read(lack))) = mm.fault(space, own.start, Access::Read) {
            reads = Some(lack);
        }
    });
    paint.measure("next_read, read_done", FAULT, || read(mm, reads.take().expect("it lacks one")));
    paint.measure("fault: a file", FAULT, || {
        touch(mm, space, own, Access::Read);
        touch(mm, space, code, Access::Execute);
    });
    paint.measure("fault: COW of a file", FAULT, || touch(mm, space, own, Access::Write));
    paint.measure("fault: a shared file", FAULT, || touch(mm, space, shared, Access::Write));
    paint.measure("next_write, write_done", LONG, || write(mm, file, spaces));
    paint.measure("read", FAULT, || {
        let mut reader = Readahead::default();
        for at in 0..PAGES {
            let pages = FilePages::new(at, at + 1);
            let held = mm.files().read(file, pages, &mut reader, Pattern::Normal);
            if let Ok((held, _)) = held {
                mm.files().release(held);
            }
        }
    });
    paint.measure("collapse_file", FILES_CHANGE, || {
        let _ = mm.reclaim().collapse_file(space, code, spaces);
    });
    paint.measure(
        "reclaim of files",
        LONG,
        || {
            while mm.reclaim().reclaim(300, spaces).pages() > 0 {}
        },
    );
    touch(mm, space, shared, Access::Write);
    paint.measure("truncate", FILES_CHANGE, || {
        mm.files().truncate(file, 100, spaces).expect("it is open");
    });
    paint.measure("destroy_in: files", LONG, || mm.destroy_in(&mut place));
    paint.measure("close", LONG, || mm.files().close(file).expect("it is open"));
}

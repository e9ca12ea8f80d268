//! The verbs of a script, and the meaning of their arguments.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// How many arguments a verb has at most.
pub const ARGS: usize = 6;

/// The meaning of an argument, which also decides how it is drawn. The world takes each argument
/// modulo what it has, so that every number suits every setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A page of the window.
    Page,
    /// How many pages of the window, one at least; cut off at its end.
    Pages,
    /// Rights: 0 none, 1 read, 2 read and write, 3 read and execute, 4 all.
    Rights,
    /// Rights: 1 read, 2 write, 4 execute, or any sum of them.
    Bits,
    /// A choice among this many.
    Of(u32),
    /// A file.
    File,
    /// A page of a file, or its length.
    FilePage,
    /// A process.
    Process,
    /// A folio's order.
    Order,
}

/// Makes [`Verb`], its names and its arguments of one table.
macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident $name:literal [$($arg:expr),*];)*) => {
        /// A verb.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Verb { $($(#[$doc])* $verb,)* }

        impl Verb {
            /// All there are.
            pub const ALL: &'static [Verb] = &[$(Verb::$verb),*];

            /// Its name in scripts.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$verb => $name,)* }
            }

            /// The meaning of its arguments.
            #[must_use]
            pub const fn args(self) -> &'static [Arg] {
                use Arg::*;
                match self { $(Verb::$verb => const { &[$($arg),*] },)* }
            }
        }
    };
}

verbs! {
    /// A load from a page.
    Read "read" [Page];
    /// A store to a page.
    Write "write" [Page];
    /// An instruction fetch from a page.
    Fetch "fetch" [Page];
    /// Loads, or stores, through a run of pages.
    Sweep "sweep" [Page, Pages, Of(2)];
    /// Stores zeroes to a run of pages.
    Wipe "wipe" [Page, Pages];
    /// Maps zeroed memory: page, pages, rights, flags, place (fixed, no-replace, anywhere).
    Map "map" [Page, Pages, Rights, Of(6), Of(3)];
    /// Shows a file: page, pages, rights, file, its first page, shared or private.
    Show "show" [Page, Pages, Rights, File, FilePage, Of(2)];
    /// Shows frames: page, pages, rights, whose (a run that is lent, RAM that the library never
    /// had, a device), the first of them, place (fixed, no-replace, anywhere).
    Frames "frames" [Page, Pages, Rights, Of(3), FilePage, Of(3)];
    /// The run is taken back, or left to the areas that show it.
    EndLoan "endloan" [Of(2)];
    /// Unmaps.
    Unmap "unmap" [Page, Pages];
    /// Gives other rights.
    Protect "protect" [Page, Pages, Rights];
    /// Advises about large folios: nothing, wanted, not wanted.
    Advise "advise" [Page, Pages, Of(3)];
    /// Sets or clears a flag: not for children, zeroes for children, sequential, random.
    Mark "mark" [Page, Pages, Of(4), Of(2)];
    /// Frees memory; the areas stay.
    Discard "discard" [Page, Pages];
    /// Makes pages guards: each access to them is refused.
    Guard "guard" [Page, Pages];
    /// Takes guards away.
    Unguard "unguard" [Page, Pages];
    /// Lets memory go when it is needed elsewhere.
    Free "free" [Page, Pages];
    /// Notes which pages are written from now on.
    Track "track" [Page, Pages];
    /// Watches for writes to protected pages, or no longer.
    Watch "watch" [Page, Pages, Of(2)];
    /// Protects pages, or no longer.
    Shield "shield" [Page, Pages, Of(3)];
    /// Moves folios to other frames.
    Migrate "migrate" [Page, Pages];
    /// Makes one more free block of an order, by moving this many pages at most.
    Compact "compact" [Order, Pages];
    /// Compacts in the background: the percentage of the free memory that is to lie in large
    /// blocks, and the most pages that move.
    Ahead "ahead" [Of(101), Pages];
    /// Another user of memory takes just these frames: the first, and how many.
    Take "take" [FilePage, Of(600)];
    /// Faults may ask for compaction, or not.
    Answer "answer" [Of(2)];
    /// Keeps pages in memory, or no longer.
    Lock "lock" [Page, Pages, Of(2)];
    /// Faults pages in.
    Populate "populate" [Page, Pages];
    /// Makes folios of an order of what is there.
    Collapse "collapse" [Page, Pages, Order];
    /// Forgets that pages were touched.
    Age "age" [Page, Pages];
    /// Moves pages: from, how many, how many there are to be, to where, whether the area stays.
    Move "move" [Page, Pages, Pages, Page, Of(2)];
    /// Makes an area longer or shorter where it is.
    Resize "resize" [Page, Pages, Pages];
    /// Frees folios that hold nothing but zeroes.
    DropZeroes "dropzeroes" [Page, Pages];
    /// Scans on in the background and collapses blocks: the number of pages to scan; the limits for
    /// missing, swapped and shared pages of a block; how hard to try.
    Scan "scan" [Pages, Of(4), Of(3), Of(2), Of(2)];
    /// Pages out: the process's own folios, or shared ones, too.
    PageOut "pageout" [Page, Pages, Of(2)];
    /// Reclaims this many pages from all processes.
    Reclaim "reclaim" [Pages];
    /// Writes what is dirty of a file.
    Sync "sync" [File];
    /// Writes what is dirty of the swap device.
    SyncSwap "syncswap" [];
    /// Drops clean pages of a file.
    Drop "drop" [File, FilePage, FilePage];
    /// Gives a file another length.
    Truncate "truncate" [File, FilePage];
    /// Reads a page of a file as `read(2)` does.
    Look "look" [File, FilePage];
    /// Writes a page of a file as `write(2)` does.
    Put "put" [File, FilePage];
    /// Another process becomes a copy of this one; what it was ends.
    Fork "fork" [Process];
    /// The process ends, and begins anew with nothing.
    Replace "replace" [];
    /// A device gets a page: it may write it.
    Pin "pin" [Page];
    /// It is done with one of its pages.
    Unpin "unpin" [Of(16)];
    /// It looks at one of its pages, or writes it.
    Device "device" [Of(16), Of(2)];
    /// A swap device comes into use, with this many slots.
    SwapOn "swapon" [FilePage];
    /// It goes out of use.
    SwapOff "swapoff" [];
    /// Which folios are wanted: order, policy (never, always, where advised, as the top level).
    Size "size" [Order, Of(4)];
    /// How large a copy of a shared page may be.
    CopyMost "copymost" [Order];
    /// The top-level choice about large folios: always, where advised, never.
    Enabled "enabled" [Of(3)];
    /// How hard to try for them.
    Defrag "defrag" [Of(5)];
    /// How many pages one step of paging out takes at most.
    EvictMost "evictmost" [Order];
    /// Which kind of memory is to be reclaimed.
    Swappiness "swappiness" [Of(6)];
    /// How many zeroes a folio may hold before reclaiming divides it.
    ZeroesMost "zeroesmost" [Of(5)];
    /// The process's choice about large folios.
    OptOut "optout" [Of(3)];
    /// Another user of memory takes a block.
    Hoard "hoard" [Order];
    /// And gives one back.
    Return "return" [Of(16)];
    /// Memory fails: that of a page, or any frame.
    Lose "lose" [Page, Of(3)];
    /// One of the frames that have failed is as good as new.
    Mend "mend" [Of(16)];
    /// A new group; as a part of which.
    Group "group" [Of(8)];
    /// A group ends, if it is empty.
    EndGroup "endgroup" [Of(8)];
    /// The process joins a group, or none.
    Join "join" [Of(8)];
    /// How many pages a group may have.
    Limit "limit" [Of(8), Of(2048)];
    /// A group is counted, and pages out what is too much.
    Relieve "relieve" [Of(8)];
    /// Pages out of a group, whatever its limit.
    GroupOut "groupout" [Of(8), Pages];
    /// A group may have this many pages more.
    Lend "lend" [Of(8), Pages];
    /// Shows reserved folios: page, pages, rights, first block of the file, shared or private; as
    /// said, or to the next block, or with a promise.
    Reserve "reserve" [Page, Pages, Rights, FilePage, Of(2), Of(4)];
    /// The pool of reserved folios gets another size, and another limit of its surplus.
    Pool "pool" [Of(40), Of(6)];
    /// Promises folios to blocks of their file: the first, and how many.
    Promise "promise" [FilePage, Of(6)];
    /// Ends such promises.
    Renounce "renounce" [FilePage, Of(6)];
    /// Makes a hole in a file in memory: of usual or of reserved folios, its first page, and how
    /// many.
    Punch "punch" [Of(2), FilePage, Pages];
    /// Gives the file of reserved folios as many blocks.
    Cut "cut" [FilePage];
    /// Moves pages into a watched area: from, how many, to where, whether holes count as moved; the
    /// target as it is, or watched and empty, or new; the same, and protected.
    Shift "shift" [Page, Pages, Page, Of(2), Of(8)];
    /// How large the copies of a shared page may be, in folios of an order: the sizes as bits.
    CopySizes "copysizes" [Order, Of(1024)];
    /// Which folios of files are wanted: order, choice (never, allowed, preferred, for code).
    FileSize "filesize" [Order, Of(4)];
    // Those below are for exact worlds only: other models cannot tell what comes of them.
    /// Maps zeroed memory: page, pages, rights as bits, flags, place (fixed, no-replace, hint,
    /// anywhere), whether it may get other rights.
    Place "place" [Page, Pages, Bits, Of(18), Of(4), Of(4)];
    /// Gives other rights, as bits.
    Regrant "regrant" [Page, Pages, Bits];
    /// Sets and clears flags, some of which no call may change.
    Flag "flag" [Page, Pages, Of(11)];
    /// Moves pages: from, how many, how many there are to be, to where; and how: to any place, or
    /// without the area (fixed, no-replace, hint, anywhere).
    Carry "carry" [Page, Pages, Pages, Page, Of(5)];
    /// A device gets a page, and only reads it.
    PinRead "pinread" [Page];
}

impl Verb {
    /// Whether it moves folios of any number to other frames.
    #[must_use]
    pub const fn moves_folios(self) -> bool {
        matches!(self, Self::Migrate | Self::Compact | Self::Ahead | Self::Take)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Verb::ALL.iter().find(|verb| verb.name() == text);
        found.copied().ok_or_else(|| format!("there is no verb {text:?}"))
    }
}

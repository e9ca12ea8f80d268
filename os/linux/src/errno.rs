//! The reason a call failed, as Linux numbers it.

use core::fmt;

use linux_raw_sys::errno;

/// A number of Linux's `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(u16);

/// The result of a call.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno(errno::$name as u16);)*

            /// Its symbol.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Errno::$name => stringify!($name),)*
                    _ => "unknown",
                }
            }
        }
    };
}

numbers! {
    /// Another object has its place now.
    EIDRM
    /// The caller may not do it.
    EPERM
    /// There is no such file or directory.
    ENOENT
    /// There is no such process.
    ESRCH
    /// A signal came before it was done.
    EINTR
    /// The device failed.
    EIO
    /// There is no such device or address.
    ENXIO
    /// The arguments of a new program are too long.
    E2BIG
    /// The file is no program that can be run.
    ENOEXEC
    /// No open file has this number, or it was opened for something else.
    EBADF
    /// There is no child to wait for.
    ECHILD
    /// It would have to wait, or the moment is wrong: try again.
    EAGAIN
    /// There is no memory for it.
    ENOMEM
    /// The file's rights do not allow it.
    EACCES
    /// The address is none of the program's.
    EFAULT
    /// It is in use.
    EBUSY
    /// It is there already.
    EEXIST
    /// The new name would be on another file system.
    EXDEV
    /// There is no such device.
    ENODEV
    /// It is no directory.
    ENOTDIR
    /// It is a directory.
    EISDIR
    /// An argument makes no sense.
    EINVAL
    /// The system can have no more files open.
    ENFILE
    /// No more files can be open.
    EMFILE
    /// It is no terminal, or none that knows the request.
    ENOTTY
    /// A program that runs cannot be written.
    ETXTBSY
    /// The file would be larger than allowed.
    EFBIG
    /// There is no space left.
    ENOSPC
    /// It has no position to seek to.
    ESPIPE
    /// The file system can only be read.
    EROFS
    /// The pipe has no reader any more.
    EPIPE
    /// The result does not fit.
    ERANGE
    /// The name is too long.
    ENAMETOOLONG
    /// There is no such system call.
    ENOSYS
    /// The directory is not empty.
    ENOTEMPTY
    /// Too many symbolic links in a row.
    ELOOP
    /// The value does not fit its type.
    EOVERFLOW
    /// The message is too long.
    EMSGSIZE
    /// There is no such protocol.
    EPROTONOSUPPORT
    /// There is no such kind of socket.
    ESOCKTNOSUPPORT
    /// It is not supported.
    EOPNOTSUPP
    /// There is no such family of addresses.
    EAFNOSUPPORT
    /// The number is none of the function.
    EDOM
    /// It is no socket.
    ENOTSOCK
    /// The datagram has no address to go to.
    EDESTADDRREQ
    /// The socket there is of another kind.
    EPROTOTYPE
    /// There is no such option.
    ENOPROTOOPT
    /// The address is in use.
    EADDRINUSE
    /// The address is none of this machine's.
    EADDRNOTAVAIL
    /// No network leads there.
    ENETUNREACH
    /// There is no room for it.
    ENOBUFS
    /// The other end closed the connection, and left bytes unread.
    ECONNRESET
    /// It is connected already.
    EISCONN
    /// It is not connected.
    ENOTCONN
    /// Descriptors in messages would lead to each other in a circle.
    ETOOMANYREFS
    /// Nothing listens there.
    ECONNREFUSED
    /// The time is over.
    ETIMEDOUT
    /// The file system is damaged.
    EUCLEAN
    /// The memory has a hardware error.
    EHWPOISON
}

impl Errno {
    /// No error, and never visible to a program: the requested bytes are not in memory yet. They
    /// are being read, and the caller's [`Wake`](crate::Wake) is noted; the caller leaves the call
    /// without any effect, and makes it again from the start. So everything between a disk and a
    /// system call can wait by failing. (The number is none of Linux's.)
    pub const BLOCKED: Errno = Errno(0x200);

    /// Linux's number `number`.
    pub const fn of_number(number: u16) -> Self {
        Self(number)
    }

    /// The number, as programs know it.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl core::error::Error for Errno {}

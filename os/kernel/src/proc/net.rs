//! `/proc/sys/net`, and numbers of `/proc/sys` that are kept and shown, and have no effect.

use core::sync::atomic::{AtomicU64, Ordering};

use quire_linux::files::Text;
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::table::{Is, Row};

/// A number that programs may set, up to a most. Relaxed: nothing hangs on it.
pub(super) struct Kept {
    value: AtomicU64,
    most: u64,
}

impl Kept {
    pub(super) const fn new(value: u64, most: u64) -> Self {
        Self { value: AtomicU64::new(value), most }
    }

    pub(super) fn show(&self, out: &mut Text) -> Result<()> {
        out.print(format_args!("{}\n", self.value.load(Ordering::Relaxed)))
    }

    pub(super) fn set(&self, bytes: &[u8]) -> Result<()> {
        let value = number(bytes)?;
        if value > self.most {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// A row of such a number.
macro_rules! kept {
    ($name:literal, $value:expr, $most:expr) => {{
        static KEPT: $crate::proc::net::Kept = $crate::proc::net::Kept::new($value, $most);
        Row {
            name: $name,
            is: Is::Setting(|_, _, out| KEPT.show(out), |_, _, bytes| KEPT.set(bytes)),
        }
    }};
}
pub(super) use kept;

/// The most that an int says.
const INT: u64 = i32::MAX as u64;

pub(super) const NET: &[Row<()>] = &[
    Row { name: "core", is: Is::Table(CORE) },
    Row { name: "ipv4", is: Is::Table(VERSION_4) },
    Row { name: "unix", is: Is::Table(UNIX) },
];

const CORE: &[Row<()>] = &[
    kept!("somaxconn", 4096, INT),
    kept!("rmem_default", 212_992, INT),
    kept!("wmem_default", 212_992, INT),
    kept!("rmem_max", 212_992, INT),
    kept!("wmem_max", 212_992, INT),
];

const VERSION_4: &[Row<()>] = &[
    Row { name: "ip_local_port_range", is: Is::Text(|_, _, out| out.push(b"32768\t60999\n")) },
    kept!("tcp_max_syn_backlog", 4096, INT),
    kept!("tcp_fin_timeout", 60, INT),
    kept!("tcp_keepalive_time", 7200, INT),
    kept!("tcp_keepalive_intvl", 75, INT),
    kept!("tcp_keepalive_probes", 9, 127),
];

const UNIX: &[Row<()>] = &[kept!("max_dgram_qlen", 10, INT)];

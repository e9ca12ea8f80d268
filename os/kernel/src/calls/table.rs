//! The table of system calls.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as abi;
use quire_linux::Errno;

use super::{
    advice, attributes, cached, epoll, exec, files, futex, handle, identity, limit, lock, memory,
    misc, names, node, other, poll, present, process, remap, schedule, semaphore, shm, signal,
    socket, splice, swap, time, timer, watch,
};
use crate::isa::Call;
use crate::task::{Answer, Resume, Thread};

macro_rules! table {
    ($($name:ident => $room:ident :: $function:ident,)*;
     older: $($older:ident => $older_room:ident :: $older_function:ident,)*;
     x86_64: $($old:ident => $old_room:ident :: $old_function:ident,)*;
     riscv64: $($own:ident => $own_room:ident :: $own_function:ident,)*) => {
        fn dispatch(thread: &mut Thread, call: &Call) -> Answer {
            match call.number as u32 {
                $(abi::$name => $room::$function(thread, call.args),)*
                $(#[cfg(not(target_arch = "riscv64"))]
                  abi::$older => $older_room::$older_function(thread, call.args),)*
                $(#[cfg(target_arch = "riscv64")]
                  abi::$own => $own_room::$own_function(thread, call.args),)*
                $(#[cfg(target_arch = "x86_64")]
                  abi::$old => $old_room::$old_function(thread, call.args),)*
                _ => unknown(call),
            }
        }
    };
}

table! {
    __NR_read => files::read,
    __NR_write => files::write,
    __NR_readv => files::readv,
    __NR_writev => files::writev,
    __NR_pread64 => files::pread64,
    __NR_pwrite64 => files::pwrite64,
    __NR_preadv => files::preadv,
    __NR_pwritev => files::pwritev,
    __NR_lseek => files::lseek,
    __NR_close => files::close,
    __NR_close_range => files::close_range,
    __NR_dup => files::dup,
    __NR_dup3 => files::dup3,
    __NR_fcntl => files::fcntl,
    __NR_flock => files::flock,
    __NR_ioctl => files::ioctl,
    __NR_pipe2 => files::pipe2,
    __NR_socketpair => socket::socketpair,
    __NR_socket => socket::socket,
    __NR_bind => socket::bind,
    __NR_listen => socket::listen,
    __NR_accept => socket::accept,
    __NR_accept4 => socket::accept4,
    __NR_connect => socket::connect,
    __NR_getsockname => socket::getsockname,
    __NR_getpeername => socket::getpeername,
    __NR_shutdown => socket::shutdown,
    __NR_sendto => socket::sendto,
    __NR_sendmsg => socket::sendmsg,
    __NR_sendmmsg => socket::sendmmsg,
    __NR_recvfrom => socket::recvfrom,
    __NR_recvmsg => socket::recvmsg,
    __NR_recvmmsg => socket::recvmmsg,
    __NR_getsockopt => socket::getsockopt,
    __NR_setsockopt => socket::setsockopt,
    __NR_sendfile => files::sendfile,
    __NR_vmsplice => splice::vmsplice,
    __NR_fsync => files::fsync,
    __NR_fdatasync => files::fsync,
    __NR_sync => misc::zero,
    __NR_syncfs => files::syncfs,
    __NR_preadv2 => files::preadv2,
    __NR_pwritev2 => files::pwritev2,
    __NR_fchmodat2 => names::fchmodat2,
    __NR_fstat => files::fstat,
    __NR_fstatfs => files::fstatfs,
    __NR_getdents64 => files::getdents64,
    __NR_ftruncate => files::ftruncate,
    __NR_fallocate => files::fallocate,
    __NR_memfd_create => names::memfd_create,
    __NR_userfaultfd => watch::userfaultfd,
    __NR_fadvise64 => files::fadvise64,
    __NR_fchmod => files::fchmod,
    __NR_fchown => files::fchown,
    __NR_fchdir => files::fchdir,
    __NR_openat => names::openat,
    __NR_newfstatat => names::newfstatat,
    __NR_statx => names::statx,
    __NR_statfs => names::statfs,
    __NR_readlinkat => names::readlinkat,
    __NR_mkdirat => names::mkdirat,
    __NR_mknodat => names::mknodat,
    __NR_unlinkat => names::unlinkat,
    __NR_renameat2 => names::renameat2,
    __NR_linkat => names::linkat,
    __NR_symlinkat => names::symlinkat,
    __NR_fchmodat => names::fchmodat,
    __NR_fchownat => names::fchownat,
    __NR_utimensat => names::utimensat,
    __NR_truncate => names::truncate,
    __NR_faccessat => names::faccessat,
    __NR_faccessat2 => names::faccessat2,
    __NR_chdir => names::chdir,
    __NR_getcwd => names::getcwd,
    __NR_umask => names::umask,
    __NR_mount => names::mount,
    __NR_umount2 => names::umount2,
    __NR_ppoll => poll::ppoll,
    __NR_pselect6 => poll::pselect6,
    __NR_mmap => memory::mmap,
    __NR_munmap => memory::munmap,
    __NR_mprotect => memory::mprotect,
    __NR_mremap => remap::mremap,
    __NR_brk => memory::brk,
    __NR_madvise => advice::madvise,
    __NR_mincore => present::mincore,
    __NR_mlock => lock::mlock,
    __NR_mlock2 => lock::mlock2,
    __NR_munlock => lock::munlock,
    __NR_mlockall => lock::mlockall,
    __NR_munlockall => lock::munlockall,
    __NR_mseal => lock::mseal,
    __NR_mbind => node::mbind,
    __NR_set_mempolicy => node::set_mempolicy,
    __NR_get_mempolicy => node::get_mempolicy,
    __NR_migrate_pages => node::migrate_pages,
    __NR_move_pages => node::move_pages,
    __NR_remap_file_pages => remap::remap_file_pages,
    __NR_msync => present::msync,
    __NR_membarrier => memory::membarrier,
    __NR_cachestat => cached::cachestat,
    __NR_readahead => cached::readahead,
    __NR_sync_file_range => cached::sync_file_range,
    __NR_set_mempolicy_home_node => node::set_mempolicy_home_node,
    __NR_pidfd_send_signal => handle::pidfd_send_signal,
    __NR_get_robust_list => futex::get_robust_list,
    __NR_semget => semaphore::semget,
    __NR_semop => semaphore::semop,
    __NR_semtimedop => semaphore::semtimedop,
    __NR_semctl => semaphore::semctl,
    __NR_shmget => shm::shmget,
    __NR_shmat => shm::shmat,
    __NR_shmdt => shm::shmdt,
    __NR_shmctl => shm::shmctl,
    __NR_swapon => swap::swapon,
    __NR_swapoff => swap::swapoff,
    __NR_clone => process::clone,
    __NR_execve => exec::execve,
    __NR_execveat => exec::execveat,
    __NR_exit => process::exit,
    __NR_exit_group => process::exit_group,
    __NR_wait4 => process::wait4,
    __NR_waitid => process::waitid,
    __NR_getpid => process::getpid,
    __NR_gettid => process::gettid,
    __NR_getppid => process::getppid,
    __NR_getpgid => process::getpgid,
    __NR_setpgid => process::setpgid,
    __NR_getsid => process::getsid,
    __NR_setsid => process::setsid,
    __NR_set_tid_address => process::set_tid_address,
    __NR_sched_yield => process::sched_yield,
    __NR_sched_getaffinity => process::sched_getaffinity,
    __NR_sched_setaffinity => process::sched_setaffinity,
    __NR_getcpu => process::getcpu,
    __NR_pidfd_open => handle::pidfd_open,
    __NR_process_vm_readv => other::process_vm_readv,
    __NR_process_vm_writev => other::process_vm_writev,
    __NR_process_madvise => handle::process_madvise,
    __NR_process_mrelease => handle::process_mrelease,
    __NR_futex => futex::futex,
    __NR_futex_waitv => futex::futex_waitv,
    __NR_rt_sigaction => signal::rt_sigaction,
    __NR_rt_sigprocmask => signal::rt_sigprocmask,
    __NR_rt_sigpending => signal::rt_sigpending,
    __NR_rt_sigsuspend => signal::rt_sigsuspend,
    __NR_rt_sigtimedwait => signal::rt_sigtimedwait,
    __NR_rt_sigreturn => signal::rt_sigreturn,
    __NR_rt_sigqueueinfo => signal::rt_sigqueueinfo,
    __NR_sigaltstack => signal::sigaltstack,
    __NR_kill => signal::kill,
    __NR_tkill => signal::tkill,
    __NR_tgkill => signal::tgkill,
    __NR_clock_gettime => time::clock_gettime,
    __NR_clock_getres => time::clock_getres,
    __NR_clock_nanosleep => time::clock_nanosleep,
    __NR_nanosleep => time::nanosleep,
    __NR_gettimeofday => time::gettimeofday,
    __NR_setitimer => timer::setitimer,
    __NR_getitimer => timer::getitimer,
    __NR_timer_create => timer::timer_create,
    __NR_timer_settime => timer::timer_settime,
    __NR_timer_gettime => timer::timer_gettime,
    __NR_timer_getoverrun => timer::timer_getoverrun,
    __NR_timer_delete => timer::timer_delete,
    __NR_timerfd_create => timer::timerfd_create,
    __NR_timerfd_settime => timer::timerfd_settime,
    __NR_timerfd_gettime => timer::timerfd_gettime,
    __NR_eventfd2 => epoll::eventfd2,
    __NR_epoll_create1 => epoll::epoll_create1,
    __NR_epoll_ctl => epoll::epoll_ctl,
    __NR_epoll_pwait => epoll::epoll_pwait,
    __NR_epoll_pwait2 => epoll::epoll_pwait2,
    __NR_signalfd4 => epoll::signalfd4,
    __NR_personality => attributes::personality,
    __NR_getpriority => attributes::getpriority,
    __NR_setpriority => attributes::setpriority,
    __NR_sched_getscheduler => schedule::sched_getscheduler,
    __NR_sched_setscheduler => schedule::sched_setscheduler,
    __NR_sched_getparam => schedule::sched_getparam,
    __NR_sched_setparam => schedule::sched_setparam,
    __NR_sched_rr_get_interval => schedule::sched_rr_get_interval,
    __NR_sched_get_priority_max => schedule::sched_priority_max,
    __NR_sched_get_priority_min => schedule::sched_priority_min,
    __NR_pkey_alloc => memory::pkey_alloc,
    __NR_pkey_free => memory::pkey_free,
    __NR_pkey_mprotect => memory::pkey_mprotect,
    __NR_uname => misc::uname,
    __NR_getrandom => misc::getrandom,
    __NR_sysinfo => misc::sysinfo,
    __NR_getrlimit => limit::getrlimit,
    __NR_setrlimit => limit::setrlimit,
    __NR_prlimit64 => limit::prlimit64,
    __NR_getrusage => misc::getrusage,
    __NR_times => misc::times,
    __NR_prctl => attributes::prctl,
    __NR_reboot => misc::reboot,
    __NR_getuid => identity::getuid,
    __NR_geteuid => identity::geteuid,
    __NR_getgid => identity::getgid,
    __NR_getegid => identity::getegid,
    __NR_getgroups => identity::getgroups,
    __NR_setuid => identity::setuid,
    __NR_setgid => identity::setgid,
    __NR_setgroups => identity::setgroups,
    __NR_setresuid => identity::setresuid,
    __NR_setresgid => identity::setresgid,
    __NR_setreuid => identity::setreuid,
    __NR_setregid => identity::setregid,
    __NR_getresuid => identity::getresuid,
    __NR_getresgid => identity::getresgid,
    __NR_setfsuid => identity::setfsuid,
    __NR_setfsgid => identity::setfsgid,
    __NR_capget => identity::capget,
    __NR_capset => identity::capset,
    __NR_set_robust_list => futex::set_robust_list,
    __NR_getxattr => misc::no_attributes,
    __NR_lgetxattr => misc::no_attributes,
    __NR_fgetxattr => misc::no_attributes,
    __NR_listxattr => misc::no_attributes,
    __NR_llistxattr => misc::no_attributes,
    __NR_flistxattr => misc::no_attributes,
    __NR_setxattr => misc::no_attributes,
    __NR_lsetxattr => misc::no_attributes,
    __NR_fsetxattr => misc::no_attributes,
    __NR_removexattr => misc::no_attributes,
    __NR_lremovexattr => misc::no_attributes,
    __NR_fremovexattr => misc::no_attributes,
    __NR_rseq => misc::absent,
    __NR_clone3 => misc::absent,;
    older:
    __NR_renameat => names::renameat,;
    x86_64:
    __NR_open => names::open,
    __NR_creat => names::creat,
    __NR_stat => names::stat,
    __NR_lstat => names::lstat,
    __NR_readlink => names::readlink,
    __NR_mkdir => names::mkdir,
    __NR_mknod => names::mknod,
    __NR_unlink => names::unlink,
    __NR_rmdir => names::rmdir,
    __NR_rename => names::rename,
    __NR_link => names::link,
    __NR_symlink => names::symlink,
    __NR_chmod => names::chmod,
    __NR_chown => names::chown,
    __NR_lchown => names::lchown,
    __NR_access => names::access,
    __NR_utime => names::utime,
    __NR_utimes => names::utimes,
    __NR_dup2 => files::dup2,
    __NR_pipe => files::pipe,
    __NR_poll => poll::poll,
    __NR_select => poll::select,
    __NR_fork => process::fork,
    __NR_vfork => process::vfork,
    __NR_getpgrp => process::getpgrp,
    __NR_pause => signal::pause,
    __NR_time => time::time,
    __NR_alarm => timer::alarm,
    __NR_eventfd => epoll::eventfd,
    __NR_epoll_create => epoll::epoll_create,
    __NR_epoll_wait => epoll::epoll_wait,
    __NR_signalfd => epoll::signalfd,
    __NR_arch_prctl => misc::arch_prctl,;
    riscv64:
    __NR_riscv_flush_icache => misc::flush_icache,
    __NR_riscv_hwprobe => misc::absent,
}

/// Makes the call that a thread stopped at, or the one it makes again.
pub(crate) fn make(thread: &mut Thread, call: &Call) -> Answer {
    thread.begin();
    dispatch(thread, call)
}

/// Logs once for each number that there is no such call.
fn unknown(call: &Call) -> Answer {
    static TOLD: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
    let bit = 1_u64 << (call.number % 64);
    let is_new = TOLD
        .get(call.number / 64)
        .is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0);
    if is_new {
        let name = syscalls::Sysno::new(call.number).map_or("unknown", |number| number.name());
        log!("no system call {} ({name})", call.number);
    }
    Err(Errno::ENOSYS.into())
}

/// Whether a call that a handler interrupted is made again, where its action has `SA_RESTART`.
/// Those that wait for a time or a signal are not.
pub(super) fn is_restarted(call: &Call, resume: &Resume) -> bool {
    if matches!(
        resume,
        Resume::Until(_)
            | Resume::Within(..)
            | Resume::Futex(_, Some(_))
            | Resume::Futexes(_, Some(_))
    ) {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    if matches!(
        call.number as u32,
        abi::__NR_pause | abi::__NR_poll | abi::__NR_select | abi::__NR_epoll_wait
    ) {
        return false;
    }
    !matches!(
        call.number as u32,
        abi::__NR_rt_sigsuspend
            | abi::__NR_rt_sigtimedwait
            | abi::__NR_ppoll
            | abi::__NR_pselect6
            | abi::__NR_epoll_pwait
            | abi::__NR_epoll_pwait2
            | abi::__NR_nanosleep
            | abi::__NR_clock_nanosleep
    )
}

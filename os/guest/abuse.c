/* abuse: throws random system calls with hostile arguments at the kernel from several processes,
 * and checks that no other process suffers.
 *
 * The results of the calls do not matter. The kernel must live on, each process must be killable,
 * new memory must be zero, no call may return bytes of another process or addresses of the kernel,
 * and all frames must be free again at the end.
 *
 * Keepers fill memory, pipes and files with canaries and free them, so that the next owner's memory
 * held canaries. A canary is a pair of words, of which the second follows from the first: a reader
 * recognises one without more knowledge.
 *
 * An alarm must be true. So the program looks only where it knows the right content: no longer in
 * its arena once something else may be mapped there, and nowhere once another process has the same
 * memory, which throws calls at it meanwhile.
 *
 * It is for machines that may be thrown away: it runs only as the child of the first process. The
 * seed is printed; it gives the same calls again as far as time and chance allow. */
#include "common.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"

enum {
    ARENA_PAGES = 8,      /* data that calls read and write */
    GROUND_PAGES = 1024,  /* the memory that calls change */
    CALLS = 400,          /* of one process */
    LINE_CALLS = 40,      /* of its child */
    ROUND_MS = 500,       /* how long a process may live; many wait for events that never come */
    KILL_MS = 60000,      /* how long a killed process may take to end */
    NUMBERS = 470,        /* system calls are below */
    LIMIT_MIB = 20,       /* of address space for each process */
    WORKERS_MAX = 16,
    STACKS = 8,           /* for children that share our memory */
    STACK_WORDS = 8192,
    LEAKED = 77,          /* exit status of a process that met foreign data */
};

/* A finding, in memory that all processes share. */
struct finding {
    volatile int kind; /* 0: nothing */
    volatile long call;
    volatile unsigned long value;
    atomic_ulong calls;  /* that came back */
    atomic_ulong looks;  /* at the arena */
    atomic_ulong blocks; /* of new memory that were looked at */
};

static const char *const kinds[] = {
    "nothing", "a canary of another process", "an address of the kernel",
    "new memory that is not zero",
};

static struct finding *finding;
static uint64_t state; /* of the random sequence */
static char *arena, *ground;

/* Whether no other process has this process's memory, and whether its arena is as it was at
 * first. */
static volatile bool is_alone = true, is_arena_own = true;

static uint64_t pick(uint64_t below) { return next_random(&state) % below; }

static uint64_t twin(uint64_t word) { return word * 0x9E3779B97F4A7C15u ^ 0x5BD1E995C2B2AE3Du; }

/* Ends this process and reports its finding. */
__attribute__((noreturn)) static void tell(int kind, long call, uint64_t value)
{
    finding->call = call;
    finding->value = value;
    finding->kind = kind;
    _exit(LEAKED);
}

/* ---- Keepers: they hold secrets ---- */

static void fill(uint64_t *words, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes / 8; i += 2) {
        words[i] = next_random(&state);
        words[i + 1] = twin(words[i]);
    }
}

static void verify(const uint64_t *words, size_t bytes, const char *what)
{
    for (size_t i = 0; i + 1 < bytes / 8; i += 2)
        if (words[i + 1] != twin(words[i]))
            end(1, "%s: the word at %zu is not what was written.", what, i);
}

/* Sends secrets through a pipe and a file: the kernel's own memory holds them meanwhile. */
static void keep_in_kernel(uint64_t *words)
{
    int ends[2];
    uint64_t back[512];
    if (pipe(ends))
        failed("pipe");
    if (write(ends[1], words, sizeof back) != sizeof back ||
        read(ends[0], back, sizeof back) != sizeof back)
        failed("a pipe");
    verify(back, sizeof back, "a pipe");
    if (write(ends[1], words, sizeof back) < 0) /* Stays there until the pipe ends. */
        failed("a pipe");
    close(ends[0]);
    close(ends[1]);
    int file = open("/tmp/abuse-keeper", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        failed("a file");
    if (pwrite(file, words, 4 * PAGE, 0) > 0 && pread(file, back, sizeof back, PAGE) > 0)
        verify(back, sizeof back, "a file");
    close(file);
    unlink("/tmp/abuse-keeper");
}

__attribute__((noreturn)) static void keep(uint64_t deadline)
{
    while (now_ns() < deadline) {
        size_t bytes = (4 + pick(1020)) * PAGE;
        bool reserved = !pick(4);
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_HUGETLB : 0);
        bytes = reserved ? HUGE_BYTES : bytes;
        uint64_t *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
        if (words == MAP_FAILED && reserved)
            continue; /* The others have them all. */
        if (words == MAP_FAILED)
            failed("a keeper's mmap");
        madvise(words, bytes, pick(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        fill(words, bytes);
        keep_in_kernel(words);
        pid_t child = pick(4) ? -1 : fork();
        if (!child) {
            verify(words, bytes, "the memory that a child inherited");
            fill(words, bytes / 2);
            _exit(0);
        }
        verify(words, bytes, "a keeper's memory");
        int status = 0;
        bool waited = child > 0 ? waitpid(child, &status, 0) == child : true;
        /* There may be no folio left for the child's copy. */
        bool ends = !status || status == SIGKILL || (reserved && status == SIGBUS);
        if (!waited || !ends)
            end(1, "a keeper's child ended with status %#x.", status);
        munmap(words, bytes);
    }
    _exit(0);
}

/* ---- Arguments ---- */

static const uint64_t edges[] = {
    0, 1, 2, 3, 7, 8, 15, 16, 63, 64, 255, 256, 4095, 4096, 4097, 65535, 65536, 1u << 20,
    INT32_MAX, 1ull << 31, UINT32_MAX, 1ull << 32, 1ull << 40, 1ull << 47, 1ull << 48, 1ull << 62,
    INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 4095, UINT64_MAX - 99,
};

/* Addresses outside a program: at the end of its address space, beyond, the kernel's. */
static const uint64_t strange[] = {
    0, 1, 8, 4096, 0x7fffffffefff, 0x7fffffffeff8, 0x7ffffffff000, 0x7fffffffffff,
    0x800000000000, 0xfffffffff000, 0xffffffffffff, 0x1000000000000, 0xdead000000000000,
    0x7fffffffffffffff, 0x8000000000000000, 0xffff7fffffffffff, 0xffff800000000000,
    0xffff800000001000, 0xffff888000000000, 0xffffffff80000000, 0xffffffff81000000,
    0xfffffffffffff000, 0xfffffffffffffff8, 0xffffffffffffffff,
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const paths[] = {
    "a", "b", "d", "d/a", "d/b/c", "", ".", "..", "/", "/proc/self/maps", "/proc/self/mem",
    "/proc/self/pagemap", "/proc/self/smaps", "/proc/self/status", "/proc/self/fd/3",
    "/proc/self/exe", "/proc/meminfo", "/proc/kpageflags", "/proc/self/task", "/proc/self/cwd/a",
};

static uint64_t address(void)
{
    switch (pick(8)) {
    case 0: return strange[pick(COUNT(strange))];
    case 1: return (uint64_t)ground + pick(GROUND_PAGES) * PAGE;
    case 2: return (uint64_t)arena + ARENA_PAGES * PAGE - pick(17); /* Its end is a hole. */
    case 3: return (uint64_t)arena + pick(ARENA_PAGES * PAGE);
    default: return (uint64_t)arena + pick(ARENA_PAGES * 64) * 64;
    }
}

/* The address of a path, sometimes of one without an end. */
static uint64_t path(void)
{
    char *at = arena + pick(ARENA_PAGES) * PAGE;
    if (!pick(16))
        memset(arena, 'x', ARENA_PAGES * PAGE);
    else
        strcpy(at, paths[pick(COUNT(paths))]);
    return (uint64_t)at;
}

/* Where a file is written, or where it ends: near, or so far that it must be refused. Offsets
 * between would only eat memory. */
static uint64_t place(void)
{
    return pick(4) ? pick(16 * PAGE) : edges[COUNT(edges) - 10 + pick(10)];
}

static uint64_t argument(void)
{
    switch (pick(10)) {
    case 0: case 1: return edges[pick(COUNT(edges))];
    case 2: return pick(16);
    case 3: return (uint64_t)-(int64_t)pick(200); /* AT_FDCWD is one of them. */
    case 4: return (1u << pick(32)) | (1u << pick(32));
    case 5: return path();
    default: return address();
    }
}

/* Fills a piece of the arena with values that structures have. */
static void litter(void)
{
    uint64_t *words = (uint64_t *)(arena + pick(ARENA_PAGES * 8 - 8) * 512);
    for (size_t i = 0; i < 64; i++)
        words[i] = pick(2) ? argument() : pick(4) ? pick(4096) : 0;
}

/* ---- Calls ---- */

/* Calls that would hurt the machine or its other processes by design, or end this process. */
static const short forbidden[] = {
    SYS_exit, SYS_exit_group, SYS_reboot, SYS_kexec_load, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_settimeofday, SYS_clock_settime,
    SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_syslog, SYS_vhangup, SYS_acct,
    SYS_quotactl, SYS_setsid, SYS_setpgid, SYS_sched_setscheduler, SYS_sched_setparam,
    SYS_sched_setattr, SYS_setpriority, SYS_process_vm_writev, SYS_ptrace, SYS_bpf, SYS_setrlimit,
    SYS_mknodat, SYS_pidfd_send_signal, SYS_clone3, SYS_kexec_file_load, SYS_ioprio_set,
#ifdef __x86_64__
    SYS_mknod, SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
};

/* Calls of memory management get more than their share. */
static const short favourites[] = {
    SYS_mmap, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_mremap, SYS_brk, SYS_madvise,
    SYS_madvise, SYS_mincore, SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_msync,
    SYS_clone, SYS_futex, SYS_process_madvise, SYS_read, SYS_write, SYS_readv, SYS_writev,
    SYS_pread64, SYS_openat, SYS_pipe2, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_sigaltstack,
    SYS_ppoll, SYS_prctl, SYS_fcntl, SYS_ioctl, SYS_getdents64, SYS_socket, SYS_socketpair,
    SYS_bind, SYS_listen, SYS_connect, SYS_accept4, SYS_sendto, SYS_sendmsg, SYS_recvfrom,
    SYS_recvmsg, SYS_shutdown, SYS_getsockopt, SYS_setsockopt,
};

static long number_of_call(void)
{
    if (pick(2))
        return favourites[pick(COUNT(favourites))];
    long call = pick(64) ? (long)pick(NUMBERS) : (long)edges[pick(COUNT(edges))];
    for (size_t i = 0; i < COUNT(forbidden); i++)
        if ((int)call == forbidden[i])
            return SYS_getpid;
    return call;
}

/* Pages to play with: mostly some that are there. */
static void aim(uint64_t *start, uint64_t *bytes)
{
    if (!pick(8))
        return;
    size_t from = pick(GROUND_PAGES);
    *start = (uint64_t)ground + from * PAGE;
    *bytes = (1 + pick(pick(4) ? 40 : GROUND_PAGES)) * PAGE;
    if (!pick(32))
        *start += pick(PAGE);
}

/* Only itself, its group, or no process: not its tester. */
static uint64_t victim(bool with_group)
{
    uint64_t none = 4194304 + pick(1000000);
    return pick(2) ? none : with_group && !pick(8) ? 0 : (uint64_t)syscall(SYS_getpid);
}

/* Whether `bytes` bytes from `start` on lie at the arena. */
static bool is_at_arena(uint64_t start, uint64_t bytes)
{
    uint64_t from = (uint64_t)arena - PAGE, end = start + bytes;
    if (end < start)
        end = UINT64_MAX;
    return start < from + (ARENA_PAGES + 2) * PAGE && from < end;
}

/* Makes the arguments of some calls such that they get further, and do no harm outside. */
static void adapt(long call, uint64_t *a)
{
    static const int advices[] = {0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                  20, 21, 22, 23, 24, 25, 102, 103};
    switch (call) {
    case SYS_mmap:
        aim(&a[0], &a[1]);
        if (pick(8)) {
            a[2] &= pick(4) ? 3 : 7;
            a[3] = (pick(4) ? MAP_PRIVATE : MAP_SHARED) | (pick(4) ? MAP_ANONYMOUS : 0) |
                (pick(3) ? MAP_FIXED : 0) | (pick(8) ? 0 : MAP_POPULATE | MAP_LOCKED) |
                (pick(8) ? 0 : MAP_HUGETLB);
            a[4] = pick(16);
            a[5] = pick(4) ? pick(8) * PAGE : a[5];
        }
        break;
    case SYS_mprotect: aim(&a[0], &a[1]); a[2] = pick(8) ? pick(8) : a[2]; break;
    case SYS_madvise:
        aim(&a[0], &a[1]);
        a[2] = pick(16) ? (uint64_t)advices[pick(COUNT(advices))] : a[2];
        break;
    case SYS_mremap: {
        uint64_t none;
        aim(&a[0], &a[1]);
        a[2] = pick(4) ? (1 + pick(64)) * PAGE : a[2];
        a[3] = pick(8) ? pick(8) : a[3];
        aim(&a[4], &none);
        break;
    }
    case SYS_munmap: case SYS_mincore: case SYS_mlock: case SYS_mlock2: case SYS_munlock:
    case SYS_msync:
        aim(&a[0], &a[1]);
        break;
    case SYS_clone:
        a[0] &= ~0x7e020080ull; /* No namespaces. */
        if (pick(4))
            a[0] &= ~(uint64_t)CLONE_VM; /* Nothing can be checked after it. */
        /* At most an invalid stack: on one of ours the child would return to whatever is there. */
        if (pick(2) || is_at_arena(a[1], 1) || a[1] - (uint64_t)ground <= GROUND_PAGES * PAGE)
            a[1] = 0;
        break;
    case SYS_prlimit64: a[0] = victim(false); a[2] = 0; break;
    case SYS_kill: a[0] = victim(true); break;
    case SYS_tkill: case SYS_tgkill: case SYS_rt_sigqueueinfo: case SYS_rt_tgsigqueueinfo:
    case SYS_pidfd_open: case SYS_process_vm_readv: case SYS_move_pages: case SYS_migrate_pages:
    case SYS_sched_setaffinity:
        a[0] = victim(false);
        if (call == SYS_tgkill || call == SYS_rt_tgsigqueueinfo)
            a[1] = a[0];
        break;
    case SYS_fcntl: if ((int)a[1] == F_SETOWN || (int)a[1] == 15) a[1] = F_GETFD; break;
    /* Two owners side by side must not look like an address. */
    case SYS_fchown: a[1] &= 0xffff; a[2] &= 0xffff; break;
    case SYS_fchownat: a[2] &= 0xffff; a[3] &= 0xffff; break;
#ifdef __x86_64__
    case SYS_chown: case SYS_lchown: a[1] &= 0xffff; a[2] &= 0xffff; break;
#endif
    case SYS_ftruncate: case SYS_truncate: a[1] = place(); break;
    case SYS_lseek: a[1] = place(); a[2] = pick(8); break;
    case SYS_fallocate: a[2] = place(); a[3] = place(); break;
    case SYS_pread64: case SYS_pwrite64: case SYS_preadv: case SYS_pwritev: a[3] = place(); break;
    case SYS_socket: case SYS_socketpair: {
        static const int families[] = {AF_UNIX, AF_UNIX, AF_INET, AF_INET6};
        a[0] = pick(16) ? (uint64_t)families[pick(COUNT(families))] : a[0];
        a[1] = pick(16) ? (1 + pick(5)) | (pick(4) ? SOCK_NONBLOCK : 0) : a[1];
        a[2] = pick(16) ? 0 : a[2];
        break;
    }
    case SYS_bind: case SYS_connect: a[2] = pick(8) ? 2 + pick(27) : a[2]; break;
    case SYS_getsockopt: case SYS_setsockopt:
        a[1] = pick(4) ? SOL_SOCKET : pick(42);
        a[2] = pick(8) ? pick(64) : a[2];
        break;
    default: break;
    }
}

/* Where kernels have memory and themselves: 16 GiB of the first, 64 MiB of the second. Linux may be
 * elsewhere, as chance wants it. */
static bool is_kernels(uint64_t word)
{
#ifdef __x86_64__
    static const uint64_t all = 0xffff800000000000, others = 0xffff888000000000;
    /* Not two numbers side by side, the second of which is -1 and the first one of our own. */
    bool is_code = word - 0xffffffff80000000 < 64 * MIB && __builtin_popcount((uint32_t)word) > 2;
#elif defined(__riscv)
    static const uint64_t all = 0xffffffc080000000, others = 0xffff8f8000000000;
    bool is_code = word - 0xffffffff80000000 < 64 * MIB && __builtin_popcount((uint32_t)word) > 2;
#else
    static const uint64_t all = 0xffff000000000000, others = 0xffff800080000000;
    bool is_code = false;
#endif
    bool is_memory = word - all < 16384 * MIB || word - others < 16384 * MIB;
    return is_code || (is_memory && __builtin_popcountll(word & 0xffffffffff) > 2);
}

/* Looks for data that must not be there. Data from before the call is of our own making. */
static void inspect(long call, const uint64_t *before)
{
    const uint64_t *now = (const uint64_t *)arena;
    if (!is_alone || !is_arena_own)
        return;
    atomic_fetch_add(&finding->looks, 1);
    for (size_t i = 0; i + 1 < ARENA_PAGES * PAGE / 8; i++) {
        if (now[i] == before[i])
            continue;
        if (now[i] && now[i + 1] == twin(now[i]))
            tell(1, call, now[i]);
        /* Where a call wrote beside it, a part of a word of ours is still there. */
        bool is_high = is_kernels(now[i]) && before[i] >> 48 != 0xffff &&
            (uint32_t)now[i] != (uint32_t)before[i];
        for (size_t k = 0; is_high && k < COUNT(strange); k++)
            is_high = now[i] - strange[k] + PAGE > 2 * PAGE;
        if (is_high && call != SYS_getrandom)
            tell(2, call, now[i]);
    }
}

static void check_zero(const char *at, size_t bytes, long call)
{
    for (size_t i = 0; i < bytes; i += 8)
        if (*(const uint64_t *)(at + i))
            tell(3, call, *(const uint64_t *)(at + i));
}

/* So must reserved folios be; there may be none left. */
static void take_reserved(void)
{
    size_t bytes = (1 + pick(2)) * HUGE_BYTES;
    int kind = pick(2) ? MAP_PRIVATE : MAP_SHARED;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED)
        return;
    check_zero(at, bytes, SYS_mmap);
    memset(at, 1, bytes);
    if (kind == MAP_PRIVATE && !madvise(at, HUGE_BYTES, MADV_DONTNEED))
        munmap(at + pick(2) * PAGE, HUGE_BYTES);
    munmap(at, bytes);
}

/* New memory must be zero, whichever call made it. */
static void take_new(void)
{
    if (!is_alone)
        return;
    if (!pick(4))
        return take_reserved();
    atomic_fetch_add(&finding->blocks, 1);
    size_t bytes = (1 + pick(pick(4) ? 16 : 600)) * PAGE, more = (1 + pick(32)) * PAGE;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return;
    madvise(at, bytes, pick(2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (pick(2))
        touch_pages(at + bytes / 2 / PAGE * PAGE, PAGE, 0);
    check_zero(at, bytes, SYS_mmap);
    memset(at, 1, bytes);
    if (!madvise(at, bytes / 2 / PAGE * PAGE, MADV_DONTNEED))
        check_zero(at, bytes / 2 / PAGE * PAGE, SYS_madvise);
    char *grown = mremap(at, bytes, bytes + more, MREMAP_MAYMOVE);
    if (grown != MAP_FAILED) {
        check_zero(grown + bytes, more, SYS_mremap);
        at = grown;
        bytes += more;
    }
    char *top = (char *)syscall(SYS_brk, 0);
    if ((char *)syscall(SYS_brk, top + more) == top + more) {
        char *first = (char *)(((uintptr_t)top + PAGE - 1) & ~(PAGE - 1));
        check_zero(first, (size_t)(top + more - first) & ~(PAGE - 1), SYS_brk);
        memset(first, 1, (size_t)(top + more - first));
        syscall(SYS_brk, top);
    }
    munmap(at, bytes);
}

/* Notes that a call may map something else where the arena is, or move that away. */
static void note_maps(long call, const uint64_t *a)
{
    bool may = false;
    switch (call) {
    case SYS_mmap: case SYS_munmap: may = is_at_arena(a[0], a[1] + PAGE); break;
    case SYS_mremap:
        may = is_at_arena(a[0], a[1] + PAGE) || is_at_arena(a[0], a[2] + PAGE) ||
            is_at_arena(a[4], a[2] + PAGE);
        break;
    case SYS_remap_file_pages: case SYS_shmat: may = true; break;
    default: break;
    }
    if (may)
        is_arena_own = false;
}

static void call_once(uint64_t *before);

/* A child makes a few more calls. Its own children do nothing. */
__attribute__((noreturn)) static void go_on(uint64_t *before)
{
    static volatile int depth;
    if (depth++)
        _exit(0);
    state = state * 31 + 7;
    for (int i = 0; i < LINE_CALLS; i++)
        call_once(before);
    _exit(0);
}

static int begin(void *unused)
{
    static uint64_t before[ARENA_PAGES * PAGE / 8];
    (void)unused;
    go_on(before);
}

/* Makes a child that has the same memory, and a stack of its own: on ours it would change what we
 * are about to return to. */
static long share(const uint64_t *a)
{
    static _Alignas(16) uint64_t stacks[STACKS][STACK_WORDS];
    static volatile int next;
    bool was_alone = is_alone;
    if (next == STACKS)
        return -1;
    is_alone = false;
    long child = clone(begin, stacks[next++] + STACK_WORDS, (int)a[0], NULL, a[2], a[3], a[4]);
    if (child < 0)
        is_alone = was_alone;
    return child;
}

static void call_once(uint64_t *before)
{
    uint64_t a[6];
    litter();
    long call = number_of_call();
    for (int i = 0; i < 6; i++)
        a[i] = argument();
    if (pick(2))
        a[0] = pick(16); /* A descriptor, perhaps. */
    adapt(call, a);
#ifdef __x86_64__
    if (call == SYS_vfork) {
        call = SYS_clone;
        a[0] = CLONE_VM | CLONE_VFORK | SIGCHLD;
    }
#endif
    note_maps(call, a);
    bool forks = call == SYS_clone, shares = forks && a[0] & CLONE_VM;
#ifdef __x86_64__
    forks = forks || call == SYS_fork;
#endif
    memcpy(before, arena, ARENA_PAGES * PAGE);
    long result = shares ? share(a) : syscall(call, a[0], a[1], a[2], a[3], a[4], a[5]);
    atomic_fetch_add(&finding->calls, 1);
    inspect(call, before);
    if (forks && !result)
        go_on(before);
}

/* Descriptors that calls find: 0 to 2 lead nowhere, the next ones somewhere. */
static void open_some(void)
{
    int ends[2];
    for (int fd = 0; fd < 3; fd++) {
        close(fd);
        open("/dev/null", O_RDWR);
    }
    open("/dev/zero", O_RDWR);
    open("a", O_RDWR | O_CREAT, 0600);
    open(".", O_RDONLY | O_DIRECTORY);
    open("/proc/self/maps", O_RDONLY);
    open("/proc/self/pagemap", O_RDONLY);
    open("/proc/self/mem", O_RDWR);
    int huge = (int)syscall(SYS_memfd_create, "h", 4u);
    if (huge >= 0 && ftruncate(huge, (off_t)(2 * HUGE_BYTES)))
        _exit(1);
    if (pipe2(ends, O_NONBLOCK) || pipe(ends) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        _exit(1);
}

__attribute__((noreturn)) static void abuse(int index, uint64_t seed)
{
    struct rlimit limit = {LIMIT_MIB * MIB, LIMIT_MIB * MIB}, none = {0, 0};
    char dir[32];
    state = seed;
    snprintf(dir, sizeof dir, "/tmp/abuse-%d", index);
    if (setsid() < 0 || chdir(dir))
        _exit(1);
    open_some();
    arena = mmap(NULL, (ARENA_PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena += PAGE;
    ground = mmap(NULL, GROUND_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    uint64_t *before = mmap(NULL, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mprotect(arena, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE) || ground == MAP_FAILED ||
        before == MAP_FAILED)
        _exit(1);
    setrlimit(RLIMIT_AS, &limit);
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < CALLS; i++) {
        call_once(before);
        if (!pick(16))
            take_new();
    }
    _exit(0);
}

/* ---- The processes that look after it ---- */

static void clean(int index)
{
    static const char *const names[] = {"d/b/c", "d/b", "d/a", "d", "a", "b"};
    char name[64];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(name, sizeof name, "/tmp/abuse-%d/%s", index, names[i]);
        if (unlink(name))
            rmdir(name);
    }
}

static void nothing(int signal) { (void)signal; }

static void nap(long ms)
{
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* Prints the state of a process that does not end. */
static void show(const char *what, pid_t of)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)of, what);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text);
    printf("abuse: %s: %.*s\n", path, length > 0 ? (int)length : 0, text);
    close(fd);
}

/* Waits until `child` has ended; kills it and its group after `ms`. Whether it was killed. */
static bool await(pid_t child, uint64_t ms, int *status)
{
    uint64_t began = now_ns();
    bool killed = false;
    for (pid_t ended; (ended = waitpid(child, status, WNOHANG)) != child;) {
        uint64_t passed = (now_ns() - began) / 1000000;
        if (ended < 0)
            failed("waitpid");
        if (passed >= ms && !killed) {
            kill(child, SIGKILL);
            killed = true;
        }
        if (passed >= ms + KILL_MS) {
            show("stat", child);
            show("status", child);
            end(1, "process %d does not end although it was killed.", (int)child);
        }
        nap(2);
        kill(child, SIGUSR1); /* Calls that wait are interrupted. */
    }
    kill(-child, SIGKILL); /* Its descendants are in its group. */
    return killed;
}

/* One process after the other. Prints their ends. */
__attribute__((noreturn)) static void work(int index, uint64_t deadline)
{
    unsigned long rounds = 0, killed = 0, died = 0;
    char dir[32];
    snprintf(dir, sizeof dir, "/tmp/abuse-%d", index);
    while (now_ns() < deadline && !finding->kind) {
        mkdir(dir, 0700);
        chmod(dir, 0700);
        clean(index);
        uint64_t seed = next_random(&state) | 1;
        pid_t child = fork();
        if (child < 0) {
            nap(50);
            continue;
        }
        if (!child)
            abuse(index, seed);
        int status;
        killed += await(child, ROUND_MS, &status);
        died += WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL;
        rounds++;
        while (waitpid(-1, &status, WNOHANG) > 0)
            ; /* Children by CLONE_PARENT. */
    }
    clean(index);
    rmdir(dir);
    printf("abuse: process %d: %lu rounds, %lu died of a signal, %lu had to be killed\n", index,
           rounds, died, killed);
    fflush(stdout);
    _exit(rounds || finding->kind ? 0 : 1);
}

/* The sum of the lines `NAME: ... kB` of a file of /proc for these two names. */
static long told_kib(const char *path, const char *one, const char *other)
{
    char line[128], name[64];
    long sum = 0, value;
    FILE *file = fopen(path, "r");
    if (!file)
        failed(path);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^:]: %ld", name, &value) == 2 &&
            (!strcmp(name, one) || !strcmp(name, other)))
            sum += value;
    fclose(file);
    return sum;
}

/* KiB that are free, the kernel's heap, or this process's own pages (after each fork it has some
 * more: a page that a child has as well is copied together with its neighbours). With other
 * processes' pages, that is all memory. */
static long unused_kib(void)
{
    long own = told_kib("/proc/self/status", "RssAnon", "VmPTE");
    return told_kib("/proc/meminfo", "MemFree", "Slab") + own;
}

/* Removes the segments of System V, which outlive their processes, and with them the promises of
 * reserved folios that they hold. */
static void remove_segments(void)
{
    struct shmid_ds about;
    int highest = shmctl(0, SHM_INFO, &about);
    for (int at = 0; at <= highest; at++) {
        int id = shmctl(at, SHM_STAT, &about);
        if (id >= 0)
            shmctl(id, IPC_RMID, NULL);
    }
}

/* Starts all, and waits until they are done. A kernel may kill the process that needs memory
 * last. */
static bool run(uint64_t seed, int processes, uint64_t seconds)
{
    uint64_t deadline = now_ns() + seconds * 1000000000u;
    pid_t children[WORKERS_MAX + 1];
    bool good = true;
    fflush(stdout);
    for (int i = 0; i <= processes; i++) {
        children[i] = fork();
        if (children[i] < 0)
            failed("fork");
        if (!children[i]) {
            state = seed * 2654435761u + (uint64_t)i * 40503u + 1;
            if (i == processes)
                keep(deadline);
            work(i, deadline);
        }
    }
    for (int i = 0; i <= processes; i++) {
        int status;
        if (waitpid(children[i], &status, 0) != children[i])
            failed("waitpid");
        if (status == SIGKILL) {
            printf("abuse: %d was killed, for lack of memory\n", i);
        } else if (status) {
            printf("FAILED %s %d ended with status %#x\n", i == processes ? "keeper" : "worker", i,
                   status);
            good = false;
        }
    }
    kill(-1, SIGKILL); /* All processes that are left. The first process is spared. */
    nap(500);
    remove_segments();
    return good;
}

/* The loss after a time in which nothing may be lost, in KiB, and the tolerated loss. Linux keeps
 * caches of many kinds; Quire's kernel keeps tables of its own heap: as much after 30 s as after
 * 15. */
/* The number in a file about the pool; 0 where there is no such file. */
static long pool_says(const char *path)
{
    char text[32] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    return count > 0 ? atol(text) : 0;
}

/* No process has a reserved folio, or a promise of one, any more. */
static bool check_pool(void)
{
    long all = pool_says(POOL "nr_hugepages"), free = pool_says(POOL "free_hugepages");
    long promised = pool_says(POOL "resv_hugepages");
    bool good = all == free && promised == 0;
    printf("%s reserved folios are free again: %ld of %ld, %ld promised\n",
           good ? "ok" : "FAILED", free, all, promised);
    return good;
}

static bool check_balance(long before, long after)
{
    struct utsname names;
    uname(&names);
    long tolerated = strstr(names.release, "quire") ? 256 : 32 * 1024;
    bool good = before - after <= tolerated;
    printf("%s frames are free again: %ld KiB before, %ld KiB after\n", good ? "ok" : "FAILED",
           before, after);
    return good;
}

int main(int argc, char **argv)
{
    program_name = "abuse";
    if (argc > 4)
        end(2, "usage: abuse [SECONDS [PROCESSES [SEED]]]");
    if (getppid() != 1)
        end(2, "only the first process of a machine that may be thrown away may start this.");
    uint64_t seconds = (uint64_t)(argc > 1 ? number(argv[1], 1, 100000) : 20);
    int processes = argc > 2 ? (int)number(argv[2], 1, WORKERS_MAX) : 3;
    uint64_t seed = argc > 3 ? (uint64_t)number(argv[3], 0, INT64_MAX) : now_ns() % 1000000;
    printf("abuse: %lu s, %d processes, seed %lu\n", (unsigned long)seconds, processes,
           (unsigned long)seed);
    finding = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (finding == MAP_FAILED)
        failed("mmap");
    struct sigaction interrupt = {.sa_handler = nothing};
    sigaction(SIGUSR1, &interrupt, NULL);
    /* Folios of several sizes, where a kernel has them. */
    static const size_t sizes[] = {16, 64, 2048};
    for (size_t i = 0; i < COUNT(sizes); i++)
        set_thp(sizes[i], "always");
    /* And folios that are reserved. */
    put_word(POOL "nr_hugepages", "12");
    /* The first part warms up the kernel's caches. */
    uint64_t warm = (seconds + 3) / 4;
    bool good = run(seed, processes, warm);
    long before = unused_kib();
    good = good && run(seed + 1, processes, seconds - warm + 1);
    printf("%s all processes ended, and none harmed another\n", good ? "ok" : "FAILED");
    bool clean = !finding->kind;
    printf("%s only own bytes were seen, in %lu calls\n", clean ? "ok" : "FAILED",
           atomic_load(&finding->calls));
    printf("abuse: checked the results of %lu calls and %lu blocks of new memory\n",
           atomic_load(&finding->looks), atomic_load(&finding->blocks));
    if (!clean)
        printf("abuse: after call %ld: %s, %#lx\n", finding->call, kinds[finding->kind],
               finding->value);
    good = check_balance(before, unused_kib()) && good && clean;
    good = check_pool() && good;
    return !good;
}

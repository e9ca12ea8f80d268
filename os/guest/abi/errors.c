/* The error cases of the calls on memory, one table for each call. */
#include "abi.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103, BIG = 1 << 30 };

/* Memory for all cases: 16 pages; the 5th is a hole, the 9th may not be touched, and the 13th can
 * only be read. */
static char *base;

static void *at(long page) { return base + page * PAGE; }

static bool prepare(void)
{
    base = pages(16);
    return base != MAP_FAILED && munmap(at(4), PAGE) == 0 &&
           mprotect(at(8), PAGE, PROT_NONE) == 0 && mprotect(at(12), PAGE, PROT_READ) == 0;
}

/* An address near the end of the address space, and one beyond what a program may have. */
static void *const END = (void *)~(PAGE - 1);
static void *const BEYOND = (void *)(1UL << 60);

static const char *of_mmap(void)
{
    enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };
    CHECK(prepare() && make_file("file", "text"));
    int rd = open("file", O_RDONLY), wr = open("file", O_WRONLY), rw = open("file", O_RDWR);
    int dir = open(".", O_RDONLY), gone = dup(rd), path = open("file", O_PATH), p[2];
    CHECK(pipe(p) == 0 && close(gone) == 0);
    FAILS(EINVAL, mmap(NULL, 0, RW, ANON, -1, 0));
    FAILS(EINVAL, mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
    FAILS(EINVAL, syscall(SYS_mmap, NULL, PAGE, RW, MAP_PRIVATE, rd, 1));
    FAILS(EINVAL, syscall(SYS_mmap, (char *)at(0) + 1, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    FAILS(ENOMEM, mmap(NULL, (size_t)-1, RW, ANON, -1, 0));
    FAILS(ENOMEM, mmap(NULL, ~(PAGE - 1), RW, ANON, -1, 0));
    FAILS(ENOMEM, mmap(END, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0));
    FAILS(ENOMEM, mmap(BEYOND, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    FAILS(EEXIST, mmap(at(0), PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    FAILS(EEXIST, mmap(at(3), 2 * PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    FAILS(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, gone, 0));
    FAILS(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0));
    FAILS(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, path, 0));
    FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, wr, 0));
    FAILS(EACCES, mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, wr, 0));
    FAILS(EACCES, mmap(NULL, PAGE, RW, MAP_SHARED, rd, 0));
    FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, dir, 0));
    FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, p[0], 0));
    FAILS(EOVERFLOW, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, rd, ~(PAGE - 1)));
    FAILS(EOPNOTSUPP, mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, rw, 0));
    FAILS(EOPNOTSUPP, mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | (1 << 25), rw, 0));
    FAILS(EINVAL, mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0));
    CHECK(mmap(NULL, PAGE, RW, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ||
          true);
    CHECK(mmap(NULL, PAGE, RW, MAP_PRIVATE, rd, 0) != MAP_FAILED);
    CHECK(mmap(NULL, PAGE, 0x100 | PROT_READ, ANON, -1, 0) != MAP_FAILED);
    char *ro = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rd, 0);
    CHECK(ro != MAP_FAILED);
    FAILS(EACCES, mprotect(ro, PAGE, RW));
    FAILS(EEXIST, mmap(ro, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    return NULL;
}

static const char *of_munmap(void)
{
    CHECK(prepare());
    FAILS(EINVAL, munmap((char *)at(0) + 1, PAGE));
    FAILS(EINVAL, munmap(at(0), 0));
    FAILS(EINVAL, munmap(at(0), (size_t)-1));
    FAILS(EINVAL, munmap(END, 2 * PAGE));
    FAILS(EINVAL, munmap(BEYOND, PAGE));
    CHECK(munmap(at(4), PAGE) == 0 && munmap(at(3), 3 * PAGE) == 0 && munmap(at(0), 1) == 0);
    return NULL;
}

static const char *of_mprotect(void)
{
    CHECK(prepare());
    FAILS(EINVAL, mprotect((char *)at(0) + 1, PAGE, PROT_READ));
    FAILS(EINVAL, mprotect(at(0), PAGE, 0x800));
    FAILS(EINVAL, mprotect(at(0), PAGE, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP));
    FAILS(EINVAL, mprotect(at(0), PAGE, PROT_READ | PROT_GROWSDOWN));
    FAILS(ENOMEM, mprotect(at(4), PAGE, PROT_READ));
    FAILS(ENOMEM, mprotect(at(3), 2 * PAGE, PROT_READ));
    FAILS(ENOMEM, mprotect(at(0), (size_t)-1 & ~(PAGE - 1), PROT_READ));
    FAILS(ENOMEM, mprotect(BEYOND, PAGE, PROT_READ));
    CHECK(mprotect(at(4), 0, PROT_READ) == 0);
    return NULL;
}

static const char *of_mremap(void)
{
    enum { MOVE = MREMAP_MAYMOVE, FIXED = MREMAP_MAYMOVE | MREMAP_FIXED };
    CHECK(prepare());
    char *to = pages(8);
    CHECK(to != MAP_FAILED);
    FAILS(EINVAL, mremap((char *)at(0) + 1, PAGE, PAGE, 0));
    FAILS(EINVAL, mremap(at(0), PAGE, 0, MOVE));
    FAILS(EINVAL, mremap(at(0), PAGE, PAGE, 64));
    FAILS(EINVAL, mremap(at(0), PAGE, PAGE, MREMAP_FIXED, to));
    FAILS(EINVAL, mremap(at(0), PAGE, PAGE, FIXED, to + 1));
    FAILS(EINVAL, mremap(at(0), 2 * PAGE, 2 * PAGE, FIXED, at(1)));
    FAILS(EINVAL, mremap(at(0), PAGE, PAGE, FIXED, END));
    FAILS(EINVAL, mremap(at(0), PAGE, PAGE, MREMAP_DONTUNMAP));
    FAILS(EINVAL, mremap(at(0), PAGE, 2 * PAGE, MOVE | MREMAP_DONTUNMAP));
    FAILS(EINVAL, mremap(at(0), 0, PAGE, MOVE));
    FAILS(EFAULT, mremap(at(4), PAGE, 2 * PAGE, MOVE));
    FAILS(EFAULT, mremap(at(3), 2 * PAGE, 3 * PAGE, MOVE));
    FAILS(ENOMEM, mremap(at(0), PAGE, 2 * PAGE, 0));
    FAILS(ENOMEM, mremap(at(0), PAGE, 1UL << 46, MOVE));
    FAILS(EFAULT, mremap(at(7), 2 * PAGE, 3 * PAGE, MOVE));
    char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    *shared = 5;
    char *again = mremap(shared, 0, PAGE, MOVE);
    CHECK(again != MAP_FAILED && again != shared && *again == 5);
    *again = 6;
    CHECK(*shared == 6);
    return NULL;
}

static const char *of_madvise(void)
{
    static const int holes[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
                                MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_DONTDUMP,
                                MADV_DODUMP, MADV_COLD, MADV_PAGEOUT, MADV_WIPEONFORK,
                                MADV_KEEPONFORK, MADV_FREE, MADV_POPULATE_READ};
    CHECK(make_file("file", "text"));
    int fd = open("file", O_RDWR);
    char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && own != MAP_FAILED && prepare());
    for (size_t i = 0; i < sizeof holes / sizeof *holes; i++)
        FAILS(ENOMEM, madvise(at(3), 2 * PAGE, holes[i]));
    FAILS(EINVAL, madvise((char *)at(0) + 1, PAGE, MADV_NORMAL));
    FAILS(EINVAL, madvise(at(0), PAGE, 1234));
    FAILS(EINVAL, madvise(at(0), (size_t)-1, MADV_NORMAL));
    FAILS(EINVAL, madvise(END, 2 * PAGE, MADV_NORMAL));
    CHECK(madvise(at(4), 0, MADV_NORMAL) == 0);
    FAILS(EINVAL, madvise(shared, PAGE, MADV_FREE));
    FAILS(EINVAL, madvise(own, PAGE, MADV_FREE));
    FAILS(EINVAL, madvise(shared, PAGE, MADV_WIPEONFORK));
    FAILS(EINVAL, madvise(own, PAGE, MADV_WIPEONFORK));
    FAILS(EINVAL, madvise(at(0), PAGE, MADV_REMOVE));
    FAILS(EACCES, madvise(own, PAGE, MADV_REMOVE));
    FAILS(EINVAL, madvise(at(8), PAGE, MADV_POPULATE_READ));
    FAILS(EINVAL, madvise(at(12), PAGE, MADV_POPULATE_WRITE));
    CHECK(mlock(at(0), PAGE) == 0);
    FAILS(EINVAL, madvise(at(0), PAGE, MADV_DONTNEED));
    FAILS(EINVAL, madvise(at(0), PAGE, MADV_FREE));
    FAILS(EINVAL, madvise(at(0), PAGE, MADV_PAGEOUT));
    FAILS(EINVAL, madvise(at(0), PAGE, MADV_COLD));
    CHECK(madvise(at(0), PAGE, MADV_DONTNEED_LOCKED) == 0 && munlock(at(0), PAGE) == 0);
    int ro = open("file", O_RDONLY);
    char *view = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0);
    CHECK(view != MAP_FAILED);
    FAILS(EACCES, madvise(view, PAGE, MADV_REMOVE));
    CHECK(madvise(shared, PAGE, MADV_REMOVE) == 0 && shared[0] == 0);
    return NULL;
}

static const char *of_locks(void)
{
    CHECK(prepare());
    FAILS(ENOMEM, mlock(at(4), PAGE));
    FAILS(ENOMEM, mlock(at(3), 2 * PAGE));
    FAILS(ENOMEM, munlock(at(4), PAGE));
    FAILS(ENOMEM, mlock(at(8), PAGE));
    CHECK(mlock(at(0), (size_t)-1) == 0); /* Rounded up, that is nothing. */
    FAILS(EINVAL, munlock(at(0), (size_t)-1 - 2 * PAGE));
    FAILS(EINVAL, syscall(SYS_mlock2, at(0), PAGE, 2));
    FAILS(ENOMEM, syscall(SYS_mlock2, at(4), PAGE, 1));
    FAILS(EINVAL, mlockall(0));
    FAILS(EINVAL, mlockall(8));
    FAILS(EINVAL, mlockall(4));
    CHECK(mlock((char *)at(0) + 5, 1) == 0 && munlock((char *)at(0) + 9, 1) == 0);
    CHECK(mlock(at(0), 0) == 0);
    return NULL;
}

static const char *of_mincore(void)
{
    unsigned char seen[16];
    CHECK(prepare());
    FAILS(EINVAL, mincore((char *)at(0) + 1, PAGE, seen));
    FAILS(ENOMEM, mincore(at(3), 2 * PAGE, seen));
    FAILS(ENOMEM, mincore(at(4), PAGE, seen));
    FAILS(EFAULT, mincore(at(0), PAGE, (void *)8));
    FAILS(EFAULT, mincore(at(0), PAGE, at(4)));
    FAILS(ENOMEM, mincore(at(0), (size_t)-1, seen));
    CHECK(mincore(at(0), 0, seen) == 0);
    /* A page that another process has is in memory for this one, too. */
    CHECK(make_file("file", "text"));
    int fd = open("file", O_RDWR);
    CHECK(ftruncate(fd, 2 * PAGE) == 0 && pwrite(fd, "x", 1, PAGE) == 1);
    char *file = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(file != MAP_FAILED && mincore(file, 2 * PAGE, seen) == 0 && seen[1] == 1);
    char *shared =
        mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (!child) {
        shared[PAGE] = 1;
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child && mincore(shared, 2 * PAGE, seen) == 0);
    CHECK(seen[0] == 0 && seen[1] == 1);
    return NULL;
}

static const char *of_msync(void)
{
    CHECK(prepare());
    FAILS(EINVAL, msync((char *)at(0) + 1, PAGE, MS_SYNC));
    FAILS(EINVAL, msync(at(0), PAGE, MS_SYNC | MS_ASYNC));
    FAILS(EINVAL, msync(at(0), PAGE, 64));
    FAILS(ENOMEM, msync(at(4), PAGE, MS_SYNC));
    FAILS(ENOMEM, msync(at(3), 2 * PAGE, MS_ASYNC));
    CHECK(mlock(at(0), PAGE) == 0);
    FAILS(EBUSY, msync(at(0), PAGE, MS_SYNC | MS_INVALIDATE));
    CHECK(msync(at(4), 0, MS_SYNC) == 0 && msync(at(1), PAGE, 0) == 0);
    return NULL;
}

static const char *of_limits(void)
{
    struct rlimit few = {BIG, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &few) == 0);
    FAILS(ENOMEM, mmap(NULL, BIG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *p = pages(2);
    CHECK(p != MAP_FAILED);
    FAILS(ENOMEM, mremap(p, PAGE, BIG, MREMAP_MAYMOVE));
    FAILS(ENOMEM, sbrk(BIG));
    few.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_AS, &few) == 0);
    few.rlim_cur = 64 * PAGE;
    CHECK(setrlimit(RLIMIT_DATA, &few) == 0);
    FAILS(ENOMEM, mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(mmap(NULL, BIG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    FAILS(ENOMEM, sbrk(BIG));
    FAILS(EINVAL, setrlimit(99, &few));
    FAILS(EFAULT, setrlimit(RLIMIT_AS, (void *)8));
    return NULL;
}

static const char *of_others(void)
{
    char byte[8];
    CHECK(prepare());
    struct iovec own = {byte, 1}, hole = {at(4), 1}, closed = {at(8), 1}, locked = {at(12), 1};
    pid_t self = getpid();
    FAILS(EFAULT, process_vm_readv(self, &own, 1, &hole, 1, 0));
    FAILS(EFAULT, process_vm_readv(self, &hole, 1, &own, 1, 0));
    FAILS(EFAULT, process_vm_readv(self, &own, 1, &closed, 1, 0));
    FAILS(EFAULT, process_vm_writev(self, &own, 1, &locked, 1, 0));
    FAILS(EINVAL, process_vm_readv(self, &own, 1, &own, 1, 1));
    FAILS(EINVAL, process_vm_readv(self, &own, 1025, &own, 1, 0));
    FAILS(EINVAL, process_vm_readv(self, &own, 1, &own, 1025, 0));
    FAILS(EFAULT, process_vm_readv(self, (void *)8, 1, &own, 1, 0));
    FAILS(ESRCH, process_vm_readv(1 << 22, &own, 1, &own, 1, 0));
    FAILS(EINVAL, syscall(SYS_remap_file_pages, at(0), PAGE, 0, 0, 0));
    FAILS(EINVAL, syscall(SYS_membarrier, 1 << 20, 0, 0));
    FAILS(EINVAL, syscall(SYS_membarrier, 0, 1, 0));
    FAILS(EPERM, syscall(SYS_membarrier, 8, 0, 0));
    return NULL;
}

static const char *of_nodes(void)
{
    unsigned long first = 1, other = 2;
    int mode = -1, status = -99, node = 0;
    void *page;
    CHECK(prepare());
    page = at(0);
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) && errno == ENOSYS)
        return NULL;
    CHECK(mode == 0);
    FAILS(EINVAL, syscall(SYS_get_mempolicy, &mode, NULL, 0UL, at(0), 0UL));
    FAILS(EINVAL, syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 64UL));
    FAILS(EFAULT, syscall(SYS_get_mempolicy, &mode, NULL, 0UL, at(4), 2UL));
    CHECK(syscall(SYS_set_mempolicy, 2, &first, 64UL) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) == 0 && mode == 2);
    FAILS(EINVAL, syscall(SYS_set_mempolicy, 2, &other, 64UL));
    FAILS(EINVAL, syscall(SYS_set_mempolicy, 77, NULL, 0UL));
    FAILS(EINVAL, syscall(SYS_set_mempolicy, 0, &first, 64UL));
    FAILS(EINVAL, syscall(SYS_set_mempolicy, 2, NULL, 0UL));
    FAILS(EFAULT, syscall(SYS_set_mempolicy, 2, (void *)8, 64UL));
    CHECK(syscall(SYS_set_mempolicy, 0, NULL, 0UL) == 0);
    FAILS(EINVAL, syscall(SYS_mbind, (char *)at(0) + 1, PAGE, 0, NULL, 0UL, 0));
    FAILS(EFAULT, syscall(SYS_mbind, at(3), 2 * PAGE, 2, &first, 64UL, 0));
    FAILS(EINVAL, syscall(SYS_mbind, at(0), PAGE, 2, &other, 64UL, 0));
    FAILS(EINVAL, syscall(SYS_mbind, at(0), PAGE, 2, &first, 64UL, 1 << 10));
    *(char *)at(0) = 1;
    CHECK(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) == 0 && status == 0);
    page = at(1);
    CHECK(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) == 0 && status == -ENOENT);
    page = at(4);
    CHECK(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0) == 0 && status == -EFAULT);
    FAILS(EINVAL, syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 64));
    FAILS(ESRCH, syscall(SYS_move_pages, 1 << 22, 1UL, &page, NULL, &status, 0));
    FAILS(EFAULT, syscall(SYS_move_pages, 0, 1UL, (void *)8, NULL, &status, 0));
    node = 5;
    FAILS(ENODEV, syscall(SYS_move_pages, 0, 1UL, &page, &node, &status, 2));
    FAILS(ESRCH, syscall(SYS_migrate_pages, 1 << 22, 64UL, &first, &first));
    CHECK(syscall(SYS_migrate_pages, 0, 64UL, &first, &first) == 0);
    return NULL;
}

static const char *of_prctl(void)
{
    CHECK(prctl(PR_GET_DUMPABLE) == 1 && prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    FAILS(EINVAL, prctl(PR_SET_DUMPABLE, 2));
    int signal = -1;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && prctl(PR_GET_PDEATHSIG, &signal) == 0);
    CHECK(signal == SIGUSR1);
    FAILS(EINVAL, prctl(PR_SET_PDEATHSIG, 99));
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    FAILS(EINVAL, prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    CHECK(prctl(PR_CAPBSET_READ, 0) == 1);
    FAILS(EINVAL, prctl(PR_CAPBSET_READ, 64));
    CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && prctl(PR_GET_KEEPCAPS) == 1);
    CHECK(prctl(PR_SET_TIMERSLACK, 50000) == 0 && prctl(PR_GET_TIMERSLACK) == 50000);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    FAILS(EINVAL, prctl(12345));
    return NULL;
}

const struct abi_case error_cases[] = {
    {"error_mmap", of_mmap},       {"error_munmap", of_munmap}, {"error_mprotect", of_mprotect},
    {"error_mremap", of_mremap},   {"error_madvise", of_madvise}, {"error_locks", of_locks},
    {"error_mincore", of_mincore}, {"error_msync", of_msync},   {"error_limits", of_limits},
    {"error_others", of_others},   {"error_nodes", of_nodes},   {"error_prctl", of_prctl},
    {NULL, NULL}};

/* madvise, process_madvise, membarrier, and prctl's settings of THP. */
#include "abi.h"

#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

static unsigned resident(char *at, size_t count)
{
    unsigned char words[64];
    unsigned sum = 0;
    if (mincore(at, count * PAGE, words))
        return 1000;
    for (size_t i = 0; i < count; i++)
        sum += words[i] & 1;
    return sum;
}

static const char *refuses(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED);
    FAILS(EINVAL, madvise(p, PAGE, 9999));
    FAILS(EINVAL, madvise(p + 1, PAGE, MADV_DONTNEED));
    FAILS(EINVAL, madvise(p, SIZE_MAX - 1, MADV_DONTNEED));
    CHECK(madvise(p, 0, MADV_DONTNEED) == 0);
    CHECK(munmap(p + 2 * PAGE, PAGE) == 0);
    p[PAGE] = p[3 * PAGE] = 1;
    /* Advice takes effect on the mapped part all the same. */
    FAILS(ENOMEM, madvise(p, 4 * PAGE, MADV_DONTNEED));
    CHECK(p[PAGE] == 0 && p[3 * PAGE] == 0);
    return NULL;
}

static const char *drops(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED);
    touch_pages(p, 8 * PAGE, 5);
    CHECK(madvise(p + 2 * PAGE, 3 * PAGE, MADV_DONTNEED) == 0);
    CHECK(p[PAGE] == 5 && p[2 * PAGE] == 0 && p[4 * PAGE] == 0 && p[5 * PAGE] == 5);
    CHECK(madvise(p, 1, MADV_DONTNEED) == 0 && p[0] == 0 && p[PAGE] == 5);
    return NULL;
}

/* After MADV_FREE a page has its old content or zeros; a write keeps it. */
static const char *frees(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED);
    touch_pages(p, 8 * PAGE, 5);
    CHECK(madvise(p, 8 * PAGE, MADV_FREE) == 0);
    for (size_t i = 0; i < 8; i++)
        CHECK(p[i * PAGE] == 0 || p[i * PAGE] == 5);
    p[PAGE] = 6;
    CHECK(p[PAGE] == 6);
    return NULL;
}

static bool is_readable(char *at)
{
    int ends[2];
    if (pipe(ends))
        return false;
    bool good = write(ends[1], at, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return good;
}

/* A guard may not be touched until it is removed, whatever happens between. Linux has them since
 * 6.13. */
static const char *guards(void)
{
    char *p = pages(16);
    CHECK(p != MAP_FAILED);
    touch_pages(p, 16 * PAGE, 5);
    if (madvise(p + 4 * PAGE, 4 * PAGE, MADV_GUARD_INSTALL) && errno == EINVAL)
        return NULL;
    CHECK(!is_readable(p + 4 * PAGE) && !is_readable(p + 7 * PAGE) && is_readable(p));
    CHECK(p[3 * PAGE] == 5 && p[8 * PAGE] == 5);
    CHECK(madvise(p, 16 * PAGE, MADV_DONTNEED) == 0);
    CHECK(mprotect(p, 16 * PAGE, PROT_READ) == 0);
    CHECK(mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE) == 0);
    CHECK(!is_readable(p + 5 * PAGE) && p[3 * PAGE] == 0);
    FAILS(EFAULT, madvise(p, 16 * PAGE, MADV_POPULATE_READ));
    FAILS(EINVAL, madvise(p + 1, PAGE, MADV_GUARD_INSTALL));
    CHECK(madvise(p, 16 * PAGE, MADV_GUARD_REMOVE) == 0);
    CHECK(p[4 * PAGE] == 0 && p[7 * PAGE] == 0);
    CHECK(mlock(p, PAGE) == 0);
    FAILS(EINVAL, madvise(p, PAGE, MADV_GUARD_INSTALL));
    CHECK(munlock(p, PAGE) == 0);
    return NULL;
}

/* Whether pagemap reports a page as dirty; 2 if it cannot be read. */
static unsigned is_soft_dirty(char *at)
{
    uint64_t word = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    bool good = fd >= 0 && pread(fd, &word, 8, (off_t)((uintptr_t)at / PAGE * 8)) == 8;
    close(fd);
    return good ? word >> 55 & 1 : 2;
}

static bool clear_soft_dirty(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    bool good = fd >= 0 && write(fd, "4", 1) == 1;
    close(fd);
    return good;
}

/* Pages written after clear_refs are soft-dirty, and no others; a new area is. A kernel without the
 * option reports no page as soft-dirty. */
static const char *tracks(void)
{
    char *p = pages(4);
    CHECK(p != MAP_FAILED);
    touch_pages(p, 4 * PAGE, 5);
    if (is_soft_dirty(p) != 1)
        return NULL;
    CHECK(clear_soft_dirty());
    CHECK(is_soft_dirty(p) == 0 && is_soft_dirty(p + 3 * PAGE) == 0);
    CHECK(p[2 * PAGE] == 5 && is_soft_dirty(p + 2 * PAGE) == 0);
    p[PAGE] = 6;
    CHECK(is_soft_dirty(p + PAGE) == 1 && p[PAGE] == 6);
    char *q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(4));
    CHECK(q != MAP_FAILED && is_soft_dirty(q) == 1);
    CHECK(clear_soft_dirty() && is_soft_dirty(q + PAGE) == 0);
    return NULL;
}

static const char *populates(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED && madvise(p, 4 * PAGE, MADV_POPULATE_WRITE) == 0);
    CHECK(resident(p, 4) == 4);
    CHECK(madvise(p + 4 * PAGE, 2 * PAGE, MADV_POPULATE_READ) == 0 && p[5 * PAGE] == 0);
    CHECK(mprotect(p, PAGE, PROT_READ) == 0 && madvise(p, PAGE, MADV_POPULATE_READ) == 0);
    FAILS(EINVAL, madvise(p, PAGE, MADV_POPULATE_WRITE));
    CHECK(munmap(p + 6 * PAGE, PAGE) == 0);
    FAILS(ENOMEM, madvise(p + 6 * PAGE, PAGE, MADV_POPULATE_WRITE));
    return NULL;
}

static char *shared_with_child;
static void child_of_dontfork(void)
{
    bool gone = resident(shared_with_child, 1) == 1000;
    _exit(gone && shared_with_child[PAGE] == 0 && shared_with_child[2 * PAGE] == 3 ? 0 : 1);
}

static void child_of_dofork(void)
{
    const char *p = shared_with_child;
    _exit(p[0] == 1 && p[PAGE] == 2 && p[2 * PAGE] == 3 ? 0 : 1);
}

static const char *forks(void)
{
    char *p = shared_with_child = pages(3);
    CHECK(p != MAP_FAILED && (p[0] = 1) && (p[PAGE] = 2) && (p[2 * PAGE] = 3));
    CHECK(madvise(p, PAGE, MADV_DONTFORK) == 0 && madvise(p + PAGE, PAGE, MADV_WIPEONFORK) == 0);
    CHECK(status_of(child_of_dontfork) == 0 && p[0] == 1 && p[PAGE] == 2);
    CHECK(madvise(p, PAGE, MADV_DOFORK) == 0 && madvise(p + PAGE, PAGE, MADV_KEEPONFORK) == 0);
    CHECK(status_of(child_of_dofork) == 0);
    char *s = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(s != MAP_FAILED);
    FAILS(EINVAL, madvise(s, PAGE, MADV_WIPEONFORK));
    return NULL;
}

static const char *huge(void)
{
    char *p = map_region(2 * HUGE_BYTES, "asis");
    CHECK(madvise(p, 2 * HUGE_BYTES, MADV_HUGEPAGE) == 0);
    CHECK(madvise(p + HUGE_BYTES, HUGE_BYTES, MADV_NOHUGEPAGE) == 0);
    p[0] = 1;
    p[HUGE_BYTES] = 2;
    CHECK(p[0] == 1 && p[PAGE] == 0 && p[HUGE_BYTES] == 2);
    return NULL;
}

/* Linux may refuse for want of a free huge folio; content must stay in any case. */
static const char *collapses(void)
{
    char *p = map_region(HUGE_BYTES, "asis");
    for (size_t at = 0; at < HUGE_BYTES; at += PAGE)
        p[at] = (char)(at / PAGE + 1);
    int result = madvise(p, HUGE_BYTES, MADV_COLLAPSE);
    int error = errno;
    CHECK(result == 0 || error == ENOMEM || error == EAGAIN || error == EBUSY);
    for (size_t at = 0; at < HUGE_BYTES; at += PAGE)
        CHECK(p[at] == (char)(at / PAGE + 1));
    CHECK(munmap(p + PAGE, PAGE) == 0);
    return NULL;
}

static const char *hints(void)
{
    static const int words[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
                                MADV_COLD, MADV_DONTDUMP, MADV_DODUMP};
    char *p = pages(4);
    CHECK(p != MAP_FAILED && (p[0] = 7));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        CHECK(madvise(p, 4 * PAGE, words[i]) == 0 || words[i] == MADV_WILLNEED);
    CHECK(p[0] == 7);
    return NULL;
}

static const char *for_process(void)
{
    char *p = pages(4);
    CHECK(p != MAP_FAILED && (p[0] = 7));
    struct iovec span = {p, 4 * PAGE};
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(self >= 0);
    CHECK(syscall(SYS_process_madvise, self, &span, 1, MADV_COLD, 0) == (long)(4 * PAGE));
    FAILS(EBADF, syscall(SYS_process_madvise, 999, &span, 1, MADV_COLD, 0));
    FAILS(EINVAL, syscall(SYS_process_madvise, self, &span, 1, MADV_COLD, 1));
    FAILS(EINVAL, syscall(SYS_process_madvise, self, &span, 1, 9999, 0));
    CHECK(p[0] == 7);
    /* Other processes' memory stays the same. */
    pid_t child = fork();
    if (!child)
        _exit((pause(), 0));
    int other = (int)syscall(SYS_pidfd_open, child, 0);
    FAILS(EINVAL, syscall(SYS_process_madvise, other, &span, 1, MADV_DONTNEED, 0));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child && p[0] == 7);
    return NULL;
}

static const char *barriers(void)
{
    long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    CHECK(known > 0 && (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED));
    FAILS(EPERM, syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
    FAILS(EINVAL, syscall(SYS_membarrier, 1 << 30, 0, 0));
    FAILS(EINVAL, syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 77, 0));
    return NULL;
}

static void child_inherits_thp_word(void) { _exit(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1); }

static const char *thp_of_process(void)
{
    CHECK(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1);
    CHECK(status_of(child_inherits_thp_word) == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0 && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0);
    FAILS(EINVAL, prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0));
    return NULL;
}

const struct abi_case advice_cases[] = {
    {"madvise refuses", refuses},
    {"madvise MADV_DONTNEED", drops},
    {"madvise MADV_FREE", frees},
    {"madvise MADV_GUARD_INSTALL and REMOVE", guards},
    {"clear_refs and soft-dirty pages", tracks},
    {"madvise MADV_POPULATE_READ and WRITE", populates},
    {"madvise for forks", forks},
    {"madvise MADV_HUGEPAGE and NOHUGEPAGE", huge},
    {"madvise MADV_COLLAPSE", collapses},
    {"madvise hints", hints},
    {"process_madvise", for_process},
    {"membarrier", barriers},
    {"prctl PR_SET_THP_DISABLE", thp_of_process},
    {NULL, NULL},
};

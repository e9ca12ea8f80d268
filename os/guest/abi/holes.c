/* Calls that come to a hole, or past the end, in the middle of their work: what is done before it,
 * and which error is told when several would fit. */
#include "abi.h"

#include <sys/mman.h>

/* Memory for all cases: 8 pages, of which the fifth is a hole. */
static char *base;

static bool prepare(void)
{
    base = pages(8);
    if (base == MAP_FAILED)
        return false;
    memset(base, 1, 8 * PAGE);
    return munmap(base + 4 * PAGE, PAGE) == 0;
}

/* The kilobytes that the process has locked. */
static long locked(void)
{
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    char *line = strstr(text, "VmLck:");
    return line ? atol(line + 6) : -1;
}

static bool dies_writing(long page)
{
    pid_t child = fork();
    if (!child) {
        base[page * PAGE] = 2;
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGSEGV;
}

static const char *of_mprotect(void)
{
    CHECK(prepare());
    FAILS(ENOMEM, mprotect(base, 8 * PAGE, PROT_READ));
    CHECK(dies_writing(0) && dies_writing(3) && !dies_writing(5));
    FAILS(ENOMEM, mprotect(base + 4 * PAGE, 2 * PAGE, PROT_NONE));
    CHECK(!dies_writing(5));
    FAILS(ENOMEM, mprotect(base, -(size_t)PAGE, PROT_READ));
    CHECK(mprotect(base, 0, 0x1000) == 0);
    FAILS(EINVAL, mprotect(base + 1, 0, PROT_READ));
    /* The area before the one that is refused has the new rights. */
    CHECK(make_file("file", "text") && prepare());
    int fd = open("file", O_RDONLY);
    CHECK(mmap(base + 4 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    CHECK(mprotect(base, 4 * PAGE, PROT_READ) == 0);
    FAILS(EACCES, mprotect(base + 3 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE));
    CHECK(!dies_writing(3) && dies_writing(4) && dies_writing(2));
    return NULL;
}

static const char *of_locks(void)
{
    CHECK(prepare());
    long before = locked();
    FAILS(ENOMEM, mlock(base, 8 * PAGE));
    CHECK(locked() == before + 16);
    FAILS(ENOMEM, munlock(base, 8 * PAGE));
    CHECK(locked() == before);
    FAILS(ENOMEM, syscall(SYS_mlock2, base, 8 * PAGE, 1));
    CHECK(locked() == before + 16);
    FAILS(ENOMEM, munlock(base + 4 * PAGE, PAGE));
    CHECK(munlock(base, 4 * PAGE) == 0 && locked() == before);
    CHECK(mprotect(base, PAGE, PROT_NONE) == 0);
    FAILS(ENOMEM, mlock(base, 2 * PAGE));
    CHECK(locked() == before + 8);
    return NULL;
}

static const char *of_mincore(void)
{
    unsigned char seen[8];
    memset(seen, 77, sizeof seen);
    CHECK(prepare());
    FAILS(ENOMEM, mincore(base + 3 * PAGE, 3 * PAGE, seen));
    CHECK(seen[0] == 1 && seen[1] == 77 && seen[2] == 77);
    FAILS(EFAULT, mincore(base, PAGE, (void *)-1L));
    FAILS(ENOMEM, mincore(base, (size_t)-1, (void *)-1L));
    return NULL;
}

static const char *of_msync(void)
{
    CHECK(prepare() && mlock(base + 5 * PAGE, PAGE) == 0);
    FAILS(ENOMEM, msync(base, 8 * PAGE, MS_SYNC));
    FAILS(EBUSY, msync(base, 8 * PAGE, MS_INVALIDATE));
    FAILS(ENOMEM, msync(base, 5 * PAGE, MS_INVALIDATE));
    CHECK(msync(base, (size_t)-1, MS_SYNC) == 0); /* Rounded up, that is nothing. */
    FAILS(ENOMEM, msync(base, -(size_t)PAGE, MS_SYNC));
    FAILS(EINVAL, msync(base, 0, 8));
    return NULL;
}

static const char *of_madvise(void)
{
    char *beyond = (char *)(1UL << 60);
    CHECK(prepare());
    FAILS(ENOMEM, madvise(base, 8 * PAGE, MADV_DONTNEED));
    CHECK(base[0] == 0 && base[3 * PAGE] == 0 && base[5 * PAGE] == 0);
    FAILS(ENOMEM, madvise(beyond, PAGE, MADV_NORMAL));
    FAILS(ENOMEM, madvise(beyond, PAGE, MADV_DONTNEED));
    FAILS(ENOMEM, madvise(beyond, PAGE, MADV_POPULATE_READ));
    FAILS(ENOMEM, madvise(base + 5 * PAGE, 1UL << 60, MADV_RANDOM));
    FAILS(EINVAL, madvise(base, -(size_t)PAGE, MADV_NORMAL));
    return NULL;
}

/* Bad arguments are told before bad addresses. */
static const char *of_mremap(void)
{
    enum { FIXED = MREMAP_MAYMOVE | MREMAP_FIXED, KEEP = MREMAP_MAYMOVE | MREMAP_DONTUNMAP };
    char *to = pages(2);
    CHECK(to != MAP_FAILED && prepare());
    char *hole = base + 4 * PAGE;
    FAILS(EFAULT, mremap(hole, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    FAILS(EFAULT, mremap((void *)-PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    FAILS(EINVAL, mremap(hole, PAGE, -(size_t)PAGE, MREMAP_MAYMOVE));
    FAILS(EINVAL, mremap(hole, PAGE, PAGE, FIXED, hole));
    FAILS(EINVAL, mremap(hole, 2 * PAGE, PAGE, FIXED, hole + PAGE));
    FAILS(EINVAL, mremap(hole, 2 * PAGE, PAGE, KEEP, to));
    FAILS(EINVAL, syscall(SYS_mremap, base, PAGE, PAGE, KEEP, to + 1));
    FAILS(EINVAL, syscall(SYS_mremap, base, PAGE, PAGE, KEEP, base));
    FAILS(EFAULT, syscall(SYS_mremap, hole, PAGE, PAGE, KEEP, 0UL));
    return NULL;
}

const struct abi_case hole_cases[] = {
    {"hole_mprotect", of_mprotect}, {"hole_locks", of_locks},     {"hole_mincore", of_mincore},
    {"hole_msync", of_msync},       {"hole_madvise", of_madvise}, {"hole_mremap", of_mremap},
    {NULL, NULL}};

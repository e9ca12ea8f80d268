/* Files in memory: memfd_create, seals, holes, and mappings of them. */
#include "abi.h"

#include <linux/falloc.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

static const int RW = PROT_READ | PROT_WRITE;

static int new_memfd(unsigned flags) { return (int)syscall(SYS_memfd_create, "it", flags); }

/* A new file in memory with `count` pages of holes, or -1. */
static int memfd_of(size_t count)
{
    int fd = new_memfd(MFD_ALLOW_SEALING);
    return fd >= 0 && ftruncate(fd, (off_t)(count * PAGE)) == 0 ? fd : -1;
}

static char *show(int fd, size_t count, int flags)
{
    return mmap(NULL, count * PAGE, RW, flags, fd, 0);
}

static long blocks(int fd)
{
    struct stat about;
    return fstat(fd, &about) ? -1 : (long)about.st_blocks;
}

static const char *memfd_flags(void)
{
    char path[64] = "", link[64] = "", name[300], bytes[4] = "";
    struct stat about;
    int fd;
    CHECK((fd = new_memfd(MFD_CLOEXEC)) >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size == 0);
    CHECK(about.st_nlink == 0 && (about.st_mode & 0777) == 0777);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, sizeof link - 1) > 0 && !strcmp(link, "/memfd:it (deleted)"));
    CHECK(write(fd, "abc", 3) == 3 && pread(fd, bytes, 4, 0) == 3 && !strcmp(bytes, "abc"));
    /* Its link leads to the file, and not to a name. */
    int again = open(path, O_RDONLY);
    CHECK(again >= 0 && read(again, bytes, 4) == 3);
    CHECK((fd = new_memfd(0)) >= 0 && fcntl(fd, F_GETFD) == 0);
    FAILS(EINVAL, new_memfd(0x40));
    FAILS(EFAULT, syscall(SYS_memfd_create, (char *)8, 0));
    memset(name, 'n', sizeof name);
    name[250] = 0;
    FAILS(EINVAL, syscall(SYS_memfd_create, name, 0));
    name[249] = 0;
    CHECK(syscall(SYS_memfd_create, name, 0) >= 0);
    return NULL;
}

static const char *memfd_seals(void)
{
    int fd = memfd_of(2);
    CHECK(fd >= 0 && fcntl(fd, F_GET_SEALS) == 0);
    FAILS(EINVAL, fcntl(fd, F_ADD_SEALS, 0x4000));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    FAILS(EPERM, ftruncate(fd, PAGE));
    CHECK(ftruncate(fd, 3 * PAGE) == 0);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
    FAILS(EPERM, ftruncate(fd, 4 * PAGE));
    FAILS(EPERM, pwrite(fd, "x", 1, 3 * PAGE));
    FAILS(EPERM, fallocate(fd, 0, 0, 4 * PAGE));
    CHECK(pwrite(fd, "x", 1, 0) == 1 && ftruncate(fd, 3 * PAGE) == 0);
    /* A file with a writable mapping cannot be sealed against writes. */
    char *p = show(fd, 1, MAP_SHARED);
    CHECK(p != MAP_FAILED);
    FAILS(EBUSY, fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    CHECK(munmap(p, PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0);
    FAILS(EPERM, pwrite(fd, "x", 1, 0));
    FAILS(EPERM, fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    FAILS(EPERM, show(fd, 1, MAP_SHARED));
    FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
    CHECK(fcntl(fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL));
    CHECK((p = show(fd, 1, MAP_PRIVATE)) != MAP_FAILED && *p == 'x' && (*p = 'y'));
    char byte;
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 'x');
    CHECK((fd = new_memfd(0)) >= 0 && fcntl(fd, F_GET_SEALS) == F_SEAL_SEAL);
    FAILS(EPERM, fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    return NULL;
}

/* A map that was there before stays writable; new ones are not. */
static const char *memfd_future_seal(void)
{
    int fd = memfd_of(1);
    char byte, *p = show(fd, 1, MAP_SHARED);
    CHECK(p != MAP_FAILED && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
    p[0] = 'z';
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 'z');
    FAILS(EPERM, pwrite(fd, "x", 1, 0));
    FAILS(EPERM, show(fd, 1, MAP_SHARED));
    char *only = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(only != MAP_FAILED && *only == 'z');
    FAILS(EACCES, mprotect(only, PAGE, RW));
    FAILS(EPERM, madvise(p, PAGE, MADV_REMOVE));
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0 && fallocate(fd, 0, 0, PAGE) == 0);
    FAILS(EPERM, fallocate(fd, 0, 0, 2 * PAGE));
    FAILS(EPERM, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 2 * PAGE));
    return NULL;
}

static const char *sparse(void)
{
    const off_t far = (off_t)1 << 39;
    int fd = new_memfd(0);
    char bytes[8] = "xxxxxxx";
    CHECK(fd >= 0 && ftruncate(fd, 2 * far) == 0 && blocks(fd) == 0);
    CHECK(pread(fd, bytes, 8, far) == 8 && bytes[0] == 0 && bytes[7] == 0 && blocks(fd) == 0);
    FAILS(ENXIO, lseek(fd, 0, SEEK_DATA));
    CHECK(lseek(fd, 5, SEEK_HOLE) == 5);
    CHECK(pwrite(fd, "data", 4, far + 10) == 4 && blocks(fd) == PAGE / 512);
    CHECK(lseek(fd, 0, SEEK_DATA) == far && lseek(fd, far, SEEK_HOLE) == far + PAGE);
    CHECK(lseek(fd, far + 20, SEEK_DATA) == far + 20);
    FAILS(ENXIO, lseek(fd, 2 * far, SEEK_HOLE));
    CHECK(pread(fd, bytes, 8, far + 8) == 8 && !memcmp(bytes, "\0\0data\0", 8));
    FAILS(EINVAL, ftruncate(fd, -1));
    return NULL;
}

static const char *allocating(void)
{
    int fd = new_memfd(0), only, ends[2];
    char byte = 'x';
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    struct stat about;
    CHECK(fd >= 0 && fallocate(fd, 0, 0, 4 * PAGE) == 0 && blocks(fd) == 4 * PAGE / 512);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 4 * PAGE);
    CHECK(pwrite(fd, "abc", 3, PAGE - 1) == 3 && pwrite(fd, "d", 1, 2 * PAGE) == 1);
    CHECK(fallocate(fd, punch, PAGE, PAGE) == 0 && blocks(fd) == 3 * PAGE / 512);
    CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == 0);
    CHECK(pread(fd, &byte, 1, PAGE - 1) == 1 && byte == 'a');
    CHECK(lseek(fd, 0, SEEK_HOLE) == PAGE && lseek(fd, PAGE, SEEK_DATA) == 2 * PAGE);
    /* Bytes of a page only: these are zero, and the page stays. */
    CHECK(fallocate(fd, punch, PAGE - 10, 10) == 0 && blocks(fd) == 3 * PAGE / 512);
    CHECK(pread(fd, &byte, 1, PAGE - 1) == 1 && byte == 0);
    CHECK(fallocate(fd, punch, 0, 100 * PAGE) == 0 && blocks(fd) == 0);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 4 * PAGE);
    FAILS(EINVAL, fallocate(fd, 0, 0, 0));
    FAILS(EINVAL, fallocate(fd, 0, -1, PAGE));
    FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, PAGE));
    FAILS(EOPNOTSUPP, fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE));
    FAILS(EBADF, fallocate(999, 0, 0, PAGE));
    CHECK(make_file("f", "x") && (only = open("f", O_RDONLY)) >= 0 && pipe(ends) == 0);
    FAILS(EBADF, fallocate(only, 0, 0, PAGE));
    FAILS(ESPIPE, fallocate(ends[1], 0, 0, PAGE));
    return NULL;
}

/* A hole under a map is seen in the map. */
static const char *hole_under_map(void)
{
    int fd = memfd_of(4);
    char *p = show(fd, 4, MAP_SHARED);
    CHECK(p != MAP_FAILED);
    memset(p, 'x', 4 * PAGE);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 2 * PAGE) == 0);
    CHECK(p[PAGE - 1] == 'x' && p[PAGE] == 0 && p[3 * PAGE - 1] == 0 && p[3 * PAGE] == 'x');
    p[PAGE] = 'y';
    char byte;
    CHECK(pread(fd, &byte, 1, PAGE) == 1 && byte == 'y');
    return NULL;
}

/* A hole gives its memory back, also under a map, but not the copies of a private map. */
static const char *removes(void)
{
    int fd = memfd_of(4);
    char *p = show(fd, 4, MAP_SHARED), *own = show(fd, 4, MAP_PRIVATE), byte;
    CHECK(p != MAP_FAILED && own != MAP_FAILED);
    memset(p, 'x', 4 * PAGE);
    CHECK((own[PAGE] = 'o') && own[2 * PAGE] == 'x' && blocks(fd) == 4 * PAGE / 512);
    CHECK(madvise(p + PAGE, 2 * PAGE, MADV_REMOVE) == 0 && blocks(fd) == 2 * PAGE / 512);
    CHECK(p[PAGE - 1] == 'x' && p[PAGE] == 0 && p[3 * PAGE - 1] == 0 && p[3 * PAGE] == 'x');
    CHECK(own[PAGE] == 'o' && own[2 * PAGE] == 0);
    CHECK(pread(fd, &byte, 1, 2 * PAGE) == 1 && byte == 0);
    FAILS(EACCES, madvise(own, PAGE, MADV_REMOVE));
    FAILS(EINVAL, madvise(pages(1), PAGE, MADV_REMOVE));
    return NULL;
}

/* A map of a file in memory at a place that is aligned to huge pages. */
static char *show_aligned(int fd, int flags)
{
    char *place = map_region(HUGE_BYTES, "asis");
    return mmap(place, HUGE_BYTES, RW, flags | MAP_FIXED, fd, 0);
}

/* Linux may refuse, for want of a huge folio or since shared memory is not to have any; content
 * must stay in any case, and copies must stay copies. */
static const char *collapses(void)
{
    enum { COLLAPSE = 25 };
    size_t count = HUGE_BYTES / PAGE;
    int fd = memfd_of(count);
    CHECK(fd >= 0);
    char *p = show_aligned(fd, MAP_SHARED), *own = show_aligned(fd, MAP_PRIVATE);
    CHECK(p != MAP_FAILED && own != MAP_FAILED);
    for (size_t at = 0; at < count; at += 3)
        p[at * PAGE] = (char)(at + 1);
    own[6 * PAGE] = 'o';
    int result = madvise(p, HUGE_BYTES, COLLAPSE), error = errno;
    CHECK(result == 0 || error == ENOMEM || error == EAGAIN || error == EBUSY || error == EINVAL);
    for (size_t at = 0; at < count; at++) {
        char wanted = at % 3 ? 0 : (char)(at + 1);
        CHECK(p[at * PAGE] == wanted && own[at * PAGE] == (at == 6 ? 'o' : wanted));
    }
    /* Where there are copies the map cannot be one. */
    CHECK(madvise(own, HUGE_BYTES, COLLAPSE) == -1 && own[6 * PAGE] == 'o' && p[6 * PAGE] == 7);
    p[9 * PAGE] = 'p';
    CHECK(own[9 * PAGE] == 'p');
    /* Truncated pages go, however large their folio was. */
    CHECK(ftruncate(fd, 5 * PAGE) == 0 && blocks(fd) <= (long)(5 * PAGE / 512));
    CHECK(p[3 * PAGE] == 4 && p[4 * PAGE] == 0 && ftruncate(fd, HUGE_BYTES) == 0);
    CHECK(p[6 * PAGE] == 0 && p[9 * PAGE] == 0 && own[6 * PAGE] == 0);
    return NULL;
}

/* The preferred folio size for reads of a map: an extension of Quire's kernel. */
static const char *reads_in_sizes(void)
{
    enum { READ_ORDER = 0x51524f00 };
    CHECK(make_file("f", "some"));
    int fd = open("f", O_RDONLY);
    char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED);
    CHECK(prctl(PR_SET_VMA, READ_ORDER, p, PAGE, 4) == 0 || errno == EINVAL);
    FAILS(EINVAL, prctl(PR_SET_VMA, READ_ORDER, p, PAGE, 40));
    FAILS(EINVAL, prctl(PR_SET_VMA, READ_ORDER, pages(1), PAGE, 4));
    CHECK(!memcmp(p, "some", 4));
    return NULL;
}

/* A write through one map, another map or a call is visible in all. */
static const char *one_memory(int fd)
{
    char bytes[8] = "";
    CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
    char *p = show(fd, 3, MAP_SHARED), *q = show(fd, 3, MAP_SHARED);
    char *own = show(fd, 3, MAP_PRIVATE);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && own != MAP_FAILED && p != q);
    CHECK(pwrite(fd, "call", 4, PAGE + 2) == 4 && !memcmp(p + PAGE + 2, "call", 4));
    memcpy(p + PAGE, "map", 3);
    CHECK(!memcmp(q + PAGE, "mapll", 3) && pread(fd, bytes, 6, PAGE) == 6);
    CHECK(!memcmp(bytes, "mapall", 6) && !memcmp(own + PAGE, "mapall", 6));
    /* A private copy does not change any more. */
    own[PAGE] = 'c';
    CHECK(p[PAGE] == 'm');
    p[PAGE + 1] = 'b';
    CHECK(q[PAGE + 1] == 'b' && own[PAGE + 1] == 'a');
    CHECK(msync(p, 3 * PAGE, MS_SYNC) == 0 && msync(p, PAGE, MS_ASYNC) == 0 && fsync(fd) == 0);
    CHECK(munmap(q, 3 * PAGE) == 0 && munmap(own, 3 * PAGE) == 0);
    CHECK(mprotect(p, PAGE, PROT_READ) == 0 && mprotect(p, PAGE, RW) == 0 && (p[0] = 1));
    return NULL;
}

static const char *maps_of_memfd(void) { return one_memory(new_memfd(0)); }

static const char *maps_of_file(void)
{
    const char *said = one_memory(open("f", O_RDWR | O_CREAT, 0600));
    if (said)
        return said;
    int fd = open("f", O_RDWR);
    CHECK(fd >= 0);
    char byte, *p = show(fd, 3, MAP_SHARED);
    CHECK(p != MAP_FAILED && unlink("f") == 0);
    p[5] = '5';
    CHECK(pread(fd, &byte, 1, 5) == 1 && byte == '5');
    /* It lives as long as it is shown. */
    CHECK(close(fd) == 0 && p[5] == '5' && p[PAGE + 1] == 'b');
    return NULL;
}

/* Parent and child see one file, whichever brings its pages in. */
static const char *map_across_fork(void)
{
    int fd = memfd_of(4), status;
    char *p = show(fd, 4, MAP_SHARED), *own = show(fd, 4, MAP_PRIVATE), byte;
    CHECK(p != MAP_FAILED && own != MAP_FAILED && (own[PAGE] = 1));
    pid_t child = fork();
    if (!child) {
        p[2 * PAGE] = 'c';
        own[PAGE] = 2;
        _exit(pwrite(fd, "w", 1, 3 * PAGE) == 1 && own[0] == 0 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(p[2 * PAGE] == 'c' && p[3 * PAGE] == 'w' && own[PAGE] == 1 && own[2 * PAGE] == 'c');
    CHECK(pread(fd, &byte, 1, 2 * PAGE) == 1 && byte == 'c');
    return NULL;
}

static volatile char *target;
static void load_target(void) { (void)*target; }
static void store_target(void) { *target = 1; }

/* A touch behind the end is a SIGBUS; pages that come back are zero. */
static const char *truncate_under_map(void)
{
    int fd = memfd_of(4);
    char *p = show(fd, 4, MAP_SHARED), *own = show(fd, 4, MAP_PRIVATE);
    CHECK(p != MAP_FAILED && own != MAP_FAILED);
    memset(p, 'x', 4 * PAGE);
    CHECK((own[3 * PAGE] = 'o'));
    CHECK(ftruncate(fd, PAGE + 10) == 0);
    CHECK(p[PAGE + 9] == 'x' && p[PAGE + 10] == 0 && p[2 * PAGE - 1] == 0);
    target = p + 2 * PAGE;
    CHECK(WTERMSIG(status_of(load_target)) == SIGBUS);
    target = p + 3 * PAGE;
    CHECK(WTERMSIG(status_of(store_target)) == SIGBUS);
    /* Copies go, too. */
    target = own + 3 * PAGE;
    CHECK(WTERMSIG(status_of(load_target)) == SIGBUS);
    CHECK(ftruncate(fd, 4 * PAGE) == 0 && status_of(load_target) == 0);
    CHECK(p[3 * PAGE] == 0 && own[3 * PAGE] == 0 && p[PAGE + 9] == 'x');
    /* The kernel's own copies meet the end as well. */
    CHECK(ftruncate(fd, 0) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(EFAULT, write(ends[1], p, 1));
    return NULL;
}

/* A truncation by the parent cuts the child's map, too. */
static const char *truncate_under_others(void)
{
    int fd = memfd_of(2), ready[2], go[2], status;
    char byte, *p = show(fd, 2, MAP_SHARED);
    CHECK(p != MAP_FAILED && (p[PAGE] = 1) && pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (!child) {
        bool good = p[PAGE] == 1 && write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1;
        if (!good)
            _exit(1);
        (void)*(volatile char *)(p + PAGE);
        _exit(2);
    }
    CHECK(read(ready[0], &byte, 1) == 1 && ftruncate(fd, PAGE) == 0);
    CHECK(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    return NULL;
}

/* Calls with buffers in the file that they read or write. */
static const char *calls_on_own_map(void)
{
    int fd = memfd_of(8);
    char *p = show(fd, 8, MAP_SHARED);
    CHECK(p != MAP_FAILED);
    memset(p, 'a', PAGE);
    CHECK(pwrite(fd, p, PAGE, 2 * PAGE) == PAGE && p[2 * PAGE] == 'a' && p[3 * PAGE - 1] == 'a');
    CHECK(pread(fd, p + 4 * PAGE, 2 * PAGE, PAGE) == 2 * PAGE);
    CHECK(p[4 * PAGE] == 0 && p[5 * PAGE] == 'a' && p[6 * PAGE] == 0);
    CHECK(write(fd, p + PAGE, 1) == 1 && p[0] == 0 && p[1] == 'a');
    return NULL;
}

static sigjmp_buf back;

static void on_bus(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* Writes to a few of 16 pages, until one cannot be allocated. */
static void touch_some(volatile char *at, unsigned seed)
{
    if (!sigsetjmp(back, 1))
        for (unsigned i = 0; i < 4; i++)
            at[(seed >> (18 + i) & 15) * PAGE] += 1;
}

/* Touches pages of a file while its end moves, and has children that do the same. */
static void touch_while_it_changes(int fd, unsigned seed)
{
    enum { ROUNDS = 1500, FORKS = 150 };
    signal(SIGBUS, on_bus);
    for (unsigned round = 0; round < ROUNDS; round++) {
        seed = seed * 1103515245 + 12345;
        char *at = show(fd, 16, seed & 0x10000 ? MAP_SHARED : MAP_PRIVATE);
        if (at == MAP_FAILED)
            _exit(1);
        pid_t child = round % FORKS == 0 ? fork() : 1;
        touch_some(at, seed);
        if (!child)
            _exit(0);
        munmap(at, 16 * PAGE);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
    _exit(0);
}

/* Its end moves, holes are made and bytes written, while others touch it, without harm. */
static const char *truncate_while_others_touch(void)
{
    int fd = memfd_of(16), status, left = 3;
    char bytes[PAGE];
    CHECK(fd >= 0);
    for (unsigned i = 1; i <= 3; i++)
        if (!fork())
            touch_while_it_changes(fd, i);
    for (unsigned i = 0; left > 0; i++) {
        CHECK(ftruncate(fd, (off_t)(i * 7 % 17 * PAGE)) == 0);
        CHECK(ftruncate(fd, 16 * PAGE) == 0 && pwrite(fd, "x", 1, 5 * PAGE + 1) == 1);
        int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        CHECK(fallocate(fd, mode, 3 * PAGE, 4 * PAGE) == 0);
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0; left--)
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(ftruncate(fd, 0) == 0 && blocks(fd) == 0 && ftruncate(fd, 16 * PAGE) == 0);
    for (off_t page = 0; page < 16; page++) {
        CHECK(pread(fd, bytes, PAGE, page * (off_t)PAGE) == PAGE);
        for (size_t i = 0; i < PAGE; i++)
            CHECK(bytes[i] == 0);
    }
    return NULL;
}

/* A program runs from its file, which cannot be written meanwhile. */
static const char *running(void)
{
    FAILS(ETXTBSY, open("/proc/self/exe", O_WRONLY));
    FAILS(ETXTBSY, open("/proc/self/exe", O_RDWR));
    FAILS(ETXTBSY, truncate("/proc/self/exe", 0));
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    FAILS(EINVAL, ftruncate(fd, 0));
    CHECK(!close(fd));
    return NULL;
}

const struct abi_case memory_file_cases[] = {
    {"file of a running program", running},
    {"memfd_create", memfd_flags},
    {"memfd_create and seals", memfd_seals},
    {"memfd_create and a seal for later", memfd_future_seal},
    {"file of holes", sparse},
    {"fallocate", allocating},
    {"hole under a map", hole_under_map},
    {"madvise MADV_REMOVE", removes},
    {"madvise MADV_COLLAPSE of a file", collapses},
    {"prctl PR_SET_VMA: read order", reads_in_sizes},
    {"maps of a memfd are one memory", maps_of_memfd},
    {"maps of a file are one memory", maps_of_file},
    {"maps of a memfd across fork", map_across_fork},
    {"truncate under a map", truncate_under_map},
    {"truncate under the map of another", truncate_under_others},
    {"calls on a map of the same file", calls_on_own_map},
    {"truncate while others touch", truncate_while_others_touch},
    {NULL, NULL},
};

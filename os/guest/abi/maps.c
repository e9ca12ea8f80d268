/* Mappings: mmap, munmap, mprotect, mincore, mlock, brk. */
#include "abi.h"

static const int ANON = MAP_PRIVATE | MAP_ANONYMOUS;
static const int RW = PROT_READ | PROT_WRITE;

/* Whether all of these pages are mapped. */
static bool is_mapped(char *at, size_t count)
{
    unsigned char words[64];
    return mincore(at, count * PAGE, words) == 0;
}

static const char *map_errors(void)
{
    int fd;
    CHECK(make_file("f", "x") && (fd = open("f", O_RDONLY)) >= 0);
    FAILS(EINVAL, mmap(NULL, 0, RW, ANON, -1, 0));
    FAILS(EINVAL, mmap(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
    FAILS(EINVAL, mmap((void *)0x10000001, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    FAILS(EINVAL, syscall(SYS_mmap, 0, PAGE, PROT_READ, MAP_PRIVATE, fd, 1));
    FAILS(EBADF, mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0));
    FAILS(EBADF, mmap(NULL, PAGE, RW, MAP_PRIVATE, 999, 0));
    FAILS(EACCES, mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0));
    FAILS(ENOMEM, mmap(NULL, SIZE_MAX - PAGE, RW, ANON, -1, 0));
    FAILS(ENOMEM, mmap((void *)0xffffffff80000000, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    FAILS(ENOMEM, mmap(NULL, (size_t)1 << 62, RW, ANON | MAP_NORESERVE, -1, 0));
    return NULL;
}

static const char *map_fixed(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED && (p[3 * PAGE] = 1));
    CHECK(mmap(p + 2 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == p + 2 * PAGE);
    CHECK(p[3 * PAGE] == 0);
    FAILS(EEXIST, mmap(p + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    CHECK(mmap(p + 4 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + 4 * PAGE);
    /* A hint is followed where the address is free, and ignored elsewhere. */
    CHECK(munmap(p + 4 * PAGE, PAGE) == 0);
    CHECK(mmap(p + 4 * PAGE, PAGE, RW, ANON, -1, 0) == p + 4 * PAGE);
    char *q = mmap(p, PAGE, RW, ANON, -1, 0);
    CHECK(q != MAP_FAILED && q != p);
    CHECK(mmap(NULL, PAGE, PROT_NONE, ANON | MAP_NORESERVE, -1, 0) != MAP_FAILED);
    CHECK(mmap(NULL, 1, RW, ANON, -1, 0) != MAP_FAILED);
    return NULL;
}

static const char *map_populate(void)
{
    unsigned char words[8];
    char *p = mmap(NULL, 8 * PAGE, RW, ANON | MAP_POPULATE, -1, 0);
    CHECK(p != MAP_FAILED && mincore(p, 8 * PAGE, words) == 0);
    for (int i = 0; i < 8; i++)
        CHECK(words[i] & 1);
    return NULL;
}

/* A mapping that grows down takes in the pages below it when they are touched. */
static const char *map_grows_down(void)
{
    char *room = pages(1024);
    CHECK(room != MAP_FAILED && munmap(room, 1024 * PAGE) == 0);
    char *p = mmap(room + 1000 * PAGE, PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    CHECK(p == room + 1000 * PAGE);
    *(volatile char *)(p - PAGE) = 1;
    *(volatile char *)(p - 3 * PAGE) = 2;
    CHECK(is_mapped(p - 3 * PAGE, 4));
    return NULL;
}

static const char *map_file_private(void)
{
    char byte;
    int fd;
    CHECK(make_file("f", "0123456789") && (fd = open("f", O_RDWR)) >= 0);
    char *p = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED && !memcmp(p, "0123456789", 10) && p[10] == 0 && p[PAGE - 1] == 0);
    p[0] = 'x';
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == '0' && p[0] == 'x');
    CHECK(close(fd) == 0 && p[9] == '9' && munmap(p, PAGE) == 0);
    return NULL;
}

static void load_after_file(void)
{
    int fd = open("f", O_RDWR);
    volatile char *p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)p[PAGE];
}

static const char *map_beyond_file(void)
{
    CHECK(make_file("f", "0123456789"));
    int status = status_of(load_after_file);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    return NULL;
}

static const char *unmapping(void)
{
    char *p = pages(8);
    CHECK(p != MAP_FAILED);
    FAILS(EINVAL, munmap(p + 1, PAGE));
    FAILS(EINVAL, munmap(p, 0));
    FAILS(EINVAL, munmap((void *)0xffffffff80000000, PAGE));
    CHECK(munmap(p + PAGE, PAGE) == 0 && !is_mapped(p + PAGE, 1) && is_mapped(p + 2 * PAGE, 6));
    CHECK(munmap(p + 7 * PAGE, 1) == 0 && !is_mapped(p + 7 * PAGE, 1));
    CHECK(munmap(p, 8 * PAGE) == 0 && !is_mapped(p, 1) && munmap(p, 8 * PAGE) == 0);
    return NULL;
}

static char *target;
static void load_target(void) { (void)*(volatile char *)target; }
static void store_target(void) { *(volatile char *)target = 1; }

static const char *protecting(void)
{
    char *p = pages(4);
    CHECK(p != MAP_FAILED && (p[PAGE] = 7));
    CHECK(mprotect(p + PAGE, PAGE, PROT_READ) == 0 && p[PAGE] == 7);
    target = p + PAGE;
    CHECK(WTERMSIG(status_of(store_target)) == SIGSEGV && status_of(load_target) == 0);
    CHECK(mprotect(p + PAGE, PAGE, PROT_NONE) == 0 && WTERMSIG(status_of(load_target)) == SIGSEGV);
    CHECK(mprotect(p, 4 * PAGE, RW) == 0 && p[PAGE] == 7 && (p[PAGE] = 8));
    CHECK(mprotect(p, 0, RW) == 0);
    FAILS(EINVAL, mprotect(p + 1, PAGE, RW));
    FAILS(EINVAL, mprotect(p, PAGE, 0x800));
    CHECK(munmap(p + 2 * PAGE, PAGE) == 0);
    FAILS(ENOMEM, mprotect(p, 4 * PAGE, PROT_READ));
    int fd;
    CHECK(make_file("f", "x") && (fd = open("f", O_RDONLY)) >= 0);
    char *f = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(f != MAP_FAILED);
    FAILS(EACCES, mprotect(f, PAGE, RW));
    return NULL;
}

static const char *residency(void)
{
    unsigned char words[4] = {9, 9, 9, 9};
    char *p = pages(4);
    CHECK(p != MAP_FAILED && madvise(p, 4 * PAGE, MADV_NOHUGEPAGE) + 1 >= 0);
    p[PAGE] = 1;
    CHECK(mincore(p, 4 * PAGE, words) == 0);
    CHECK(!(words[0] & 1) && (words[1] & 1) && !(words[2] & 1) && !(words[3] & 1));
    FAILS(EINVAL, mincore(p + 1, PAGE, words));
    CHECK(munmap(p + 2 * PAGE, PAGE) == 0);
    FAILS(ENOMEM, mincore(p, 4 * PAGE, words));
    FAILS(EFAULT, mincore(p, PAGE, (unsigned char *)8));
    return NULL;
}

static const char *locking(void)
{
    unsigned char words[4];
    char *p = pages(4);
    CHECK(p != MAP_FAILED && mlock(p, 2 * PAGE) == 0 && mincore(p, 2 * PAGE, words) == 0);
    CHECK((words[0] & 1) && (words[1] & 1));
    CHECK(munlock(p, 4 * PAGE) == 0 && mlock(p + 5, 10) == 0);
    CHECK(syscall(SYS_mlock2, p, 4 * PAGE, 1) == 0);
    FAILS(EINVAL, syscall(SYS_mlock2, p, PAGE, 2));
    char *q = pages(4);
    CHECK(q != MAP_FAILED && syscall(SYS_mlock2, q, 4 * PAGE, 1) == 0);
    CHECK(mincore(q, PAGE, words) == 0 && !(words[0] & 1));
    CHECK((q[0] = 1) && mincore(q, PAGE, words) == 0 && (words[0] & 1));
    CHECK(munmap(p + PAGE, PAGE) == 0);
    FAILS(ENOMEM, mlock(p, 3 * PAGE));
    FAILS(ENOMEM, munlock(p, 3 * PAGE));
    CHECK(mlockall(MCL_FUTURE) == 0);
    p = mmap(NULL, PAGE, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && mincore(p, PAGE, words) == 0 && (words[0] & 1));
    FAILS(EINVAL, mlockall(0));
    FAILS(EINVAL, mlockall(64));
    CHECK(munlockall() == 0);
    return NULL;
}

static const char *program_break(void)
{
    char *start = (char *)syscall(SYS_brk, 0);
    CHECK(start && (char *)syscall(SYS_brk, start + 3 * PAGE) == start + 3 * PAGE);
    CHECK(start[2 * PAGE] == 0 && (start[2 * PAGE] = 1));
    CHECK((char *)syscall(SYS_brk, start) == start);
    CHECK((char *)syscall(SYS_brk, start + 3 * PAGE) == start + 3 * PAGE && !start[2 * PAGE]);
    /* An impossible break is answered with the present one. */
    CHECK((char *)syscall(SYS_brk, 1) == start + 3 * PAGE);
    CHECK((char *)syscall(SYS_brk, (size_t)1 << 62) == start + 3 * PAGE);
    return NULL;
}

static volatile char *shared;

static void child_of_sharing(void)
{
    /* Pages that were not there when this child was made; it brings page 3 in itself. */
    for (int wait = 0; !shared[0] && wait < 1000; wait++)
        usleep(1000);
    shared[3 * PAGE] = 7;
    bool gone = munmap((void *)(shared + 2 * PAGE), PAGE) == 0;
    _exit(gone && shared[PAGE] == 5 ? 0 : 1);
}

/* Shared memory is one memory for all forked processes, whichever brings its pages in, and when. */
static const char *sharing(void)
{
    shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child)
        child_of_sharing();
    shared[PAGE] = 5;
    shared[2 * PAGE] = 6;
    shared[0] = 1;
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(shared[3 * PAGE] == 7 && shared[2 * PAGE] == 6);
    CHECK(madvise((void *)shared, 4 * PAGE, MADV_DONTNEED) == 0);
    CHECK(shared[0] == 1 && shared[3 * PAGE] == 7);
    CHECK(munmap((void *)shared, 4 * PAGE) == 0);
    return NULL;
}

const struct abi_case map_cases[] = {
    {"memory that is shared after a fork", sharing},
    {"mmap refuses", map_errors},
    {"mmap with MAP_FIXED", map_fixed},
    {"mmap with MAP_POPULATE", map_populate},
    {"mmap with MAP_GROWSDOWN", map_grows_down},
    {"mmap of a file, private", map_file_private},
    {"mmap beyond the end of a file", map_beyond_file},
    {"munmap", unmapping},
    {"mprotect", protecting},
    {"mincore", residency},
    {"mlock", locking},
    {"brk", program_break},
    {NULL, NULL},
};

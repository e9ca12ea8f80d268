/* The limits of a process on its memory and on its files. */
#include "abi.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { USER = 65534, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static bool set(int what, rlim_t soft)
{
    struct rlimit both;
    if (getrlimit(what, &both))
        return false;
    both.rlim_cur = soft;
    return setrlimit(what, &both) == 0;
}

static bool become_user(void)
{
    return setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 &&
           setresuid(USER, USER, USER) == 0;
}

/* Pages that a mapping replaces do not count twice. */
static const char *of_the_space(void)
{
    CHECK(set(RLIMIT_AS, 64 << 20));
    FAILS(ENOMEM, mmap(NULL, 128 << 20, RW, ANON, -1, 0));
    FAILS(ENOMEM, mmap(NULL, 128 << 20, PROT_NONE, ANON, -1, 0));
    char *p = mmap(NULL, 32 << 20, RW, ANON, -1, 0);
    CHECK(p != MAP_FAILED && mmap(p, 32 << 20, RW, ANON | MAP_FIXED, -1, 0) == p);
    FAILS(ENOMEM, mremap(p, 32 << 20, 96 << 20, MREMAP_MAYMOVE));
    CHECK(munmap(p, 32 << 20) == 0 && set(RLIMIT_AS, PAGE));
    FAILS(ENOMEM, mmap(NULL, PAGE, RW, ANON, -1, 0));
    return NULL;
}

/* Memory becomes data when it may be written, and counts from then on. */
static const char *of_data(void)
{
    char *own = pages(4), *read = mmap(NULL, PAGE, PROT_READ, ANON, -1, 0);
    CHECK(make_file("file", "text") && own != MAP_FAILED && read != MAP_FAILED);
    int fd = open("file", O_RDWR);
    CHECK(set(RLIMIT_DATA, PAGE));
    FAILS(ENOMEM, mmap(NULL, PAGE, RW, ANON, -1, 0));
    FAILS(ENOMEM, mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0));
    FAILS(ENOMEM, mprotect(read, PAGE, RW));
    CHECK(mprotect(own, PAGE, RW) == 0 && mprotect(own, PAGE, PROT_READ) == 0);
    FAILS(ENOMEM, mprotect(own, PAGE, RW));
    FAILS(ENOMEM, mremap(own + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    FAILS(ENOMEM, sbrk(PAGE));
    CHECK(mremap(read, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED);
    CHECK(mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0) != MAP_FAILED);
    /* None at all stands for the hard limit, but for the heap. */
    CHECK(set(RLIMIT_DATA, 0) && mmap(NULL, PAGE, RW, ANON, -1, 0) != MAP_FAILED);
    FAILS(ENOMEM, sbrk(PAGE));
    return NULL;
}

/* Locked memory that grows counts, too. */
static const char *of_locked_memory(void)
{
    CHECK(set(RLIMIT_MEMLOCK, 4 * PAGE) && become_user());
    char *p = pages(2);
    CHECK(p != MAP_FAILED && mlock(p, 2 * PAGE) == 0);
    FAILS(EAGAIN, mremap(p, 2 * PAGE, 16 * PAGE, MREMAP_MAYMOVE));
    FAILS(EAGAIN, mmap(NULL, 3 * PAGE, RW, ANON | MAP_LOCKED, -1, 0));
    CHECK(munlock(p, 2 * PAGE) == 0 && mlockall(MCL_FUTURE) == 0);
    FAILS(EAGAIN, mmap(NULL, 5 * PAGE, RW, ANON, -1, 0));
    FAILS(ENOMEM, sbrk(8 * PAGE));
    CHECK(mmap(NULL, 2 * PAGE, RW, ANON, -1, 0) != MAP_FAILED);
    CHECK(set(RLIMIT_MEMLOCK, 0));
    FAILS(EAGAIN, mmap(NULL, PAGE, RW, ANON, -1, 0));
    FAILS(EPERM, mmap(NULL, PAGE, RW, ANON | MAP_LOCKED, -1, 0));
    CHECK(munlockall() == 0 && mmap(NULL, PAGE, RW, ANON, -1, 0) != MAP_FAILED);
    return NULL;
}

static volatile sig_atomic_t told;

static void note(int number) { told += number == SIGXFSZ; }

static const char *of_a_file(void)
{
    int fd = open("file", O_RDWR | O_CREAT, 0600), memory = memfd_create("memory", 0);
    CHECK(fd >= 0 && memory >= 0 && set(RLIMIT_FSIZE, PAGE));
    CHECK(signal(SIGXFSZ, note) != SIG_ERR && ftruncate(fd, PAGE) == 0 && told == 0);
    FAILS(EFBIG, ftruncate(fd, PAGE + 1));
    CHECK(told == 1);
    FAILS(EFBIG, truncate("file", 2 * PAGE));
    FAILS(EFBIG, fallocate(fd, 0, 0, 2 * PAGE));
    FAILS(EFBIG, ftruncate(memory, 2 * PAGE));
    CHECK(told == 4);
    /* The bytes that fit are written, without a signal. */
    CHECK(pwrite(fd, "abcd", 4, PAGE - 2) == 2 && told == 4);
    FAILS(EFBIG, pwrite(fd, "abcd", 4, PAGE));
    struct iovec two[2] = {{"a", 1}, {"b", 1}};
    CHECK(lseek(fd, PAGE - 1, SEEK_SET) == PAGE - 1 && writev(fd, two, 2) == 1);
    FAILS(EFBIG, writev(fd, two, 2));
    CHECK(told == 6 && pwrite(fd, "a", 1, 0) == 1);
    /* A file that is longer may be cut, and be written before the limit. */
    CHECK(set(RLIMIT_FSIZE, 16) && pwrite(fd, "a", 1, 8) == 1 && ftruncate(fd, 100) == 0);
    pid_t child = fork();
    if (!child) {
        signal(SIGXFSZ, SIG_DFL);
        pwrite(fd, "a", 1, 50);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGXFSZ);
    return NULL;
}

const struct abi_case limit_cases[] = {{"limit_space", of_the_space},
                                       {"limit_data", of_data},
                                       {"limit_locked", of_locked_memory},
                                       {"limit_file", of_a_file},
                                       {NULL, NULL}};

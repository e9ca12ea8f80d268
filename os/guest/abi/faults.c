/* EFAULT: bad pointers in every kind of call, for reads and for writes. Raw calls, since libraries
 * dereference some pointers first. */
#include "abi.h"

#include <poll.h>
#include <sys/uio.h>

/* Addresses that no call may read: near NULL, unmapped, of the kernel, non-canonical. */
static size_t bad_addresses(uintptr_t *bad)
{
    char *p = pages(3);
    munmap(p + PAGE, PAGE);
    mprotect(p + 2 * PAGE, PAGE, PROT_NONE);
    bad[0] = 8;
    bad[1] = (uintptr_t)p + PAGE;
    bad[2] = (uintptr_t)p + 2 * PAGE;
    bad[3] = 0xffff800000000000;
    bad[4] = 0x0000900000000000;
    bad[5] = UINTPTR_MAX - 7;
    return 6;
}

/* A page that can be read but not written. */
static uintptr_t read_only(void)
{
    char *p = pages(1);
    mprotect(p, PAGE, PROT_READ);
    return (uintptr_t)p;
}

static const char *reads_of_pointers(void)
{
    uintptr_t bad[8];
    size_t count = bad_addresses(bad);
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (size_t i = 0; i < count; i++) {
        FAILS(EFAULT, syscall(SYS_write, ends[1], bad[i], 8));
        FAILS(EFAULT, syscall(SYS_openat, AT_FDCWD, bad[i], O_RDONLY, 0));
        FAILS(EFAULT, syscall(SYS_writev, ends[1], bad[i], 1));
        FAILS(EFAULT, syscall(SYS_nanosleep, bad[i], NULL));
        FAILS(EFAULT, syscall(SYS_rt_sigaction, SIGUSR1, bad[i], NULL, 8));
        FAILS(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, bad[i], NULL, 8));
        FAILS(EFAULT, syscall(SYS_execve, bad[i], NULL, NULL));
        FAILS(EFAULT, syscall(SYS_mkdirat, AT_FDCWD, bad[i], 0755));
        FAILS(EFAULT, syscall(SYS_unlinkat, AT_FDCWD, bad[i], 0));
        FAILS(EFAULT, syscall(SYS_chdir, bad[i]));
        FAILS(EFAULT, syscall(SYS_prlimit64, 0, 7, bad[i], NULL));
        FAILS(EFAULT, syscall(SYS_ppoll, bad[i], 1, NULL, NULL, 8));
    }
    return NULL;
}

static const char *writes_to_pointers(void)
{
    uintptr_t bad[8];
    size_t count = bad_addresses(bad);
    int fd, ends[2];
    CHECK(make_file("f", "0123456789") && (fd = open("f", O_RDONLY)) >= 0 && pipe(ends) == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    bad[count++] = read_only();
    for (size_t i = 0; i < count; i++) {
        FAILS(EFAULT, syscall(SYS_pread64, fd, bad[i], 8, 0));
        FAILS(EFAULT, syscall(SYS_read, ends[0], bad[i], 1));
        FAILS(EFAULT, syscall(SYS_fstat, fd, bad[i]));
        FAILS(EFAULT, syscall(SYS_pipe2, bad[i], 0));
        FAILS(EFAULT, syscall(SYS_uname, bad[i]));
        FAILS(EFAULT, syscall(SYS_clock_gettime, CLOCK_MONOTONIC, bad[i]));
        FAILS(EFAULT, syscall(SYS_getrandom, bad[i], 8, 0));
        FAILS(EFAULT, syscall(SYS_getcwd, bad[i], 100));
        FAILS(EFAULT, syscall(SYS_sysinfo, bad[i]));
        FAILS(EFAULT, syscall(SYS_prlimit64, 0, 7, NULL, bad[i]));
        FAILS(EFAULT, syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, bad[i], 8));
        FAILS(EFAULT, syscall(SYS_rt_sigpending, bad[i], 8));
        FAILS(EFAULT, syscall(SYS_sched_getaffinity, 0, 128, bad[i]));
    }
    return NULL;
}

/* A wait status that cannot be stored: the child is gone all the same. */
static const char *wait_status(void)
{
    pid_t child = fork();
    if (!child)
        _exit(0);
    FAILS(EFAULT, syscall(SYS_wait4, child, 8, 0, NULL));
    FAILS(ECHILD, waitpid(child, NULL, 0));
    return NULL;
}

/* A transfer that reaches unmapped memory ends there. */
static const char *partial_transfers(void)
{
    char bytes[32];
    int ends[2], fd;
    char *p = pages(2);
    CHECK(p != MAP_FAILED && munmap(p + PAGE, PAGE) == 0 && pipe(ends) == 0);
    memset(p + PAGE - 8, 'a', 8);
    ssize_t written = write(ends[1], p + PAGE - 8, 16);
    int error = errno;
    CHECK(written == 8 || (written == -1 && error == EFAULT));
    CHECK((fd = open("f", O_RDWR | O_CREAT, 0600)) >= 0);
    CHECK(write(fd, "0123456789abcdef", 16) == 16 && lseek(fd, 0, SEEK_SET) == 0);
    ssize_t got = read(fd, p + PAGE - 8, 16);
    error = errno;
    CHECK(got == 8 || (got == -1 && error == EFAULT));
    CHECK(pread(fd, bytes, 32, 0) == 16 && !memcmp(bytes, "0123456789abcdef", 16));
    return NULL;
}

/* Arrays of iovec with a bad entry after good ones. */
static const char *second_vector(void)
{
    int fd;
    struct iovec v[2] = {{"good", 4}, {(void *)8, 4}};
    CHECK((fd = open("f", O_RDWR | O_CREAT, 0600)) >= 0 && writev(fd, v, 2) == 4);
    CHECK(lseek(fd, 0, SEEK_END) == 4);
    return NULL;
}

/* Memory that a call reads or writes may be untouched, or shared since a fork. */
static const char *untouched_buffers(void)
{
    int ends[2], status;
    char *p = pages(4), *q = pages(4);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && pipe(ends) == 0);
    CHECK(write(ends[1], p, 3 * PAGE) == (ssize_t)(3 * PAGE));
    CHECK(read(ends[0], q + 100, 3 * PAGE) == (ssize_t)(3 * PAGE));
    q[0] = 1;
    pid_t child = fork();
    if (!child) {
        int fd = open("/dev/zero", O_RDONLY);
        _exit(read(fd, q, 4 * PAGE) != (ssize_t)(4 * PAGE) || q[0] != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && q[0] == 1);
    return NULL;
}

/* The right to write includes the right to read: the CPUs know no other, and calls read it as well.
 * Also while other processes have the page: after a fork, and of a file. */
static const char *only_written(void)
{
    int status, fd, ends[2];
    char *p = pages(1), back[4] = "";
    CHECK(p != MAP_FAILED && pipe(ends) == 0 && make_file("w", "0123"));
    p[0] = 7;
    CHECK(mprotect(p, PAGE, PROT_NONE) == 0);
    pid_t child = fork();
    if (!child)
        _exit(mprotect(p, PAGE, PROT_WRITE) || ((volatile char *)p)[0] != 7);
    CHECK(mprotect(p, PAGE, PROT_WRITE) == 0 && write(ends[1], p, 1) == 1);
    CHECK(read(ends[0], back, 1) == 1 && back[0] == 7);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK((fd = open("w", O_RDWR)) >= 0);
    char *q = mmap(NULL, PAGE, PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(q != MAP_FAILED && write(ends[1], q, 4) == 4 && read(ends[0], back, 4) == 4);
    CHECK(!memcmp(back, "0123", 4) && ((volatile char *)q)[1] == '1');
    q[0] = 'x';
    CHECK(pread(fd, back, 1, 0) == 1 && back[0] == '0' && close(fd) == 0);
    return NULL;
}

const struct abi_case fault_cases[] = {
    {"EFAULT for what is read", reads_of_pointers},
    {"EFAULT for what is written", writes_to_pointers},
    {"EFAULT for a wait status", wait_status},
    {"transfers that end at a hole", partial_transfers},
    {"writev with a bad second part", second_vector},
    {"buffers that are untouched or shared", untouched_buffers},
    {"memory that may be written and no more", only_written},
    {NULL, NULL},
};

/* Memory of other processes, and memory that stays as it is or may be lost; pairs of sockets. */
#include "abi.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

enum { RW = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS, NO_PROCESS = 4000000 };

static long vm_read(pid_t pid, struct iovec *to, long tos, struct iovec *from, long froms, long flags)
{
    return syscall(SYS_process_vm_readv, pid, to, tos, from, froms, flags);
}

static long vm_write(pid_t pid, struct iovec *from, long froms, struct iovec *to, long tos, long flags)
{
    return syscall(SYS_process_vm_writev, pid, from, froms, to, tos, flags);
}

/* A child with a copy of all this, which waits to be killed. */
static pid_t copy_of_me(void)
{
    pid_t child = fork();
    while (!child)
        pause();
    return child;
}

static bool end_child(pid_t child)
{
    int status;
    return kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child;
}

static const char *moves_between(void)
{
    char *p = pages(4), *q = pages(4), got[16] = {0};
    CHECK(p != MAP_FAILED && q != MAP_FAILED);
    memcpy(p + PAGE - 3, "across", 6);
    q[0] = 'q';
    pid_t child = copy_of_me();
    CHECK(child > 0);
    memset(p, 0, 2 * PAGE);
    struct iovec to[] = {{got, 2}, {NULL, 0}, {got + 8, 5}};
    struct iovec from[] = {{p + PAGE - 3, 6}, {q, 1}};
    CHECK(vm_read(child, to, 3, from, 2, 0) == 7);
    CHECK(!memcmp(got, "ac\0\0\0\0\0\0rossq", 13));
    CHECK(p[PAGE - 3] == 0);
    /* A write in the other process does not show here. */
    struct iovec text = {"words", 5}, there = {p + 2 * PAGE - 2, 5};
    CHECK(vm_write(child, &text, 1, &there, 1, 0) == 5 && p[2 * PAGE - 2] == 0);
    CHECK(vm_read(child, (struct iovec[]){{got, 5}}, 1, &there, 1, 0) == 5 && !memcmp(got, "words", 5));
    /* The shorter side decides. */
    CHECK(vm_read(child, (struct iovec[]){{got, 3}}, 1, &there, 1, 0) == 3);
    CHECK(vm_read(child, (struct iovec[]){{got, 9}}, 1, &there, 1, 0) == 5);
    CHECK(end_child(child));
    return NULL;
}

static const char *moves_a_part(void)
{
    char *p = pages(3), *q = pages(3);
    CHECK(p != MAP_FAILED && q != MAP_FAILED);
    memset(p, 'p', PAGE);
    CHECK(munmap(p + PAGE, PAGE) == 0 && munmap(q + PAGE, PAGE) == 0);
    struct iovec far = {p + PAGE - 10, 100}, near = {q, 100};
    CHECK(vm_read(getpid(), &near, 1, &far, 1, 0) == 10 && q[9] == 'p' && q[10] == 0);
    CHECK(vm_write(getpid(), &near, 1, &far, 1, 0) == 10);
    struct iovec gone = {p + PAGE, 8}, none = {q + PAGE, 8}, good = {p, 8};
    FAILS(EFAULT, vm_read(getpid(), &near, 1, &gone, 1, 0));
    FAILS(EFAULT, vm_write(getpid(), &near, 1, &gone, 1, 0));
    FAILS(EFAULT, vm_read(getpid(), &none, 1, &good, 1, 0));
    FAILS(EFAULT, vm_write(getpid(), &none, 1, &good, 1, 0));
    /* With the rights of the process itself: not to read-only pages. */
    CHECK(mprotect(p, PAGE, PROT_READ) == 0);
    FAILS(EFAULT, vm_write(getpid(), &near, 1, &good, 1, 0));
    CHECK(vm_read(getpid(), &near, 1, &good, 1, 0) == 8);
    CHECK(mprotect(p, PAGE, PROT_NONE) == 0);
    FAILS(EFAULT, vm_read(getpid(), &near, 1, &good, 1, 0));
    return NULL;
}

static const char *refuses_to_move(void)
{
    char here[8], *none = (char *)-4096L;
    struct iovec own = {here, 8}, other = {here, 8}, empty = {here, 0}, huge = {here, ~0ul};
    struct iovec *bad = (struct iovec *)none;
    FAILS(EINVAL, vm_read(getpid(), &own, 1, &other, 1, 1));
    FAILS(EINVAL, vm_write(getpid(), &own, 1, &other, 1, 1));
    FAILS(EINVAL, vm_read(getpid(), &own, 1025, &other, 1, 0));
    FAILS(EINVAL, vm_read(getpid(), &own, 1, &other, 1025, 0));
    FAILS(EINVAL, vm_read(getpid(), &own, 1, (struct iovec[]){other, huge}, 2, 0));
    FAILS(EFAULT, vm_read(getpid(), bad, 1, &other, 1, 0));
    FAILS(EFAULT, vm_read(getpid(), &own, 1, bad, 1, 0));
    FAILS(ESRCH, vm_read(NO_PROCESS, &own, 1, &other, 1, 0));
    FAILS(ESRCH, vm_write(NO_PROCESS, &own, 1, &other, 1, 0));
    /* A call without bytes to move looks for no process. */
    CHECK(vm_read(NO_PROCESS, &empty, 1, &other, 1, 0) == 0);
    CHECK(vm_read(NO_PROCESS, &own, 1, &empty, 1, 0) == 0);
    CHECK(vm_read(NO_PROCESS, &own, 0, &other, 1, 0) == 0);
    CHECK(vm_read(NO_PROCESS, &own, 1, &other, 0, 0) == 0);
    return NULL;
}

/* A debugger writes where the program may only read. */
static const char *forces_a_write(void)
{
    char *p = mmap(NULL, PAGE, PROT_READ, PRIVATE, -1, 0), byte = 'x';
    char *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int mem = open("/proc/self/mem", O_RDWR), fd;
    CHECK(p != MAP_FAILED && shared != MAP_FAILED && mem >= 0 && p[0] == 0);
    pid_t child = copy_of_me();
    CHECK(pwrite(mem, &byte, 1, (off_t)(uintptr_t)p) == 1 && p[0] == 'x');
    struct iovec own = {&byte, 1}, other = {p, 1};
    CHECK(vm_read(child, &own, 1, &other, 1, 0) == 1 && byte == 0 && end_child(child));
    FAILS(EIO, pwrite(mem, &byte, 1, (off_t)(uintptr_t)shared));
    /* A file's page is copied; the file stays the same. */
    CHECK(make_file("text", "text") && (fd = open("text", O_RDONLY)) >= 0);
    char *text = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(text != MAP_FAILED && pwrite(mem, "n", 1, (off_t)(uintptr_t)text) == 1);
    CHECK(!memcmp(text, "next", 4) && pread(fd, &byte, 1, 0) == 1 && byte == 't');
    CHECK(munmap(p, PAGE) == 0);
    FAILS(EIO, pwrite(mem, &byte, 1, (off_t)(uintptr_t)p));
    return NULL;
}

static long seal(void *at, size_t bytes, long flags) { return syscall(SYS_mseal, at, bytes, flags); }

static const char *seals(void)
{
    char *p = pages(6), *q = pages(2);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && (p[PAGE] = 7));
    FAILS(EINVAL, seal(p + 1, PAGE, 0));
    FAILS(EINVAL, seal(p, PAGE, 1));
    FAILS(EINVAL, seal(p, ~0ul, 0));
    CHECK(munmap(p + 5 * PAGE, PAGE) == 0 && seal(p, 0, 0) == 0);
    FAILS(ENOMEM, seal(p + 4 * PAGE, 2 * PAGE, 0));
    CHECK(seal(p + PAGE, 2 * PAGE, 0) == 0 && seal(p + PAGE, PAGE, 0) == 0);
    FAILS(EPERM, munmap(p, 3 * PAGE));
    FAILS(EPERM, mprotect(p + 2 * PAGE, 2 * PAGE, PROT_READ));
    FAILS(EPERM, (long)mmap(p + PAGE, PAGE, RW, PRIVATE | MAP_FIXED, -1, 0));
    FAILS(EPERM, (long)mremap(p + PAGE, 2 * PAGE, PAGE, 0));
    FAILS(EPERM, (long)mremap(p + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q));
    FAILS(EPERM, (long)mremap(q, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
    /* The page can be dropped as well. */
    CHECK(p[PAGE] == 7 && madvise(p + PAGE, PAGE, MADV_DONTNEED) == 0 && p[PAGE] == 0);
    CHECK(munmap(p, PAGE) == 0 && mprotect(p + 3 * PAGE, PAGE, PROT_READ) == 0);
    CHECK(mprotect(q, PAGE, PROT_READ) == 0 && seal(q, PAGE, 0) == 0);
    FAILS(EPERM, madvise(q, PAGE, MADV_DONTNEED));
    FAILS(EPERM, madvise(q, PAGE, MADV_FREE));
    FAILS(EPERM, madvise(q, PAGE, MADV_WIPEONFORK));
    CHECK(madvise(q, PAGE, MADV_RANDOM) == 0 && madvise(q + PAGE, PAGE, MADV_DONTNEED) == 0);
    return NULL;
}

static const char *drops(void)
{
    int anon = MAP_ANONYMOUS | MAP_DROPPABLE, fd;
    char *p = mmap(NULL, 2 * PAGE, RW, anon, -1, 0), *q = pages(1);
    CHECK(p != MAP_FAILED && q != MAP_FAILED);
    FAILS(EINVAL, (long)mmap(NULL, PAGE, RW, anon | MAP_LOCKED, -1, 0));
    CHECK(make_file("some", "text") && (fd = open("some", O_RDWR)) >= 0);
    FAILS(EINVAL, (long)mmap(NULL, PAGE, RW, MAP_DROPPABLE, fd, 0));
    memset(p, 1, 2 * PAGE);
    CHECK(p[PAGE] == 1);
    FAILS(EINVAL, madvise(p, PAGE, MADV_KEEPONFORK));
    FAILS(EINVAL, madvise(p, PAGE, MADV_DODUMP));
    /* A lock is accepted, and locks nothing: what is paged out is lost. */
    CHECK(mlock(p, 2 * PAGE) == 0 && syscall(SYS_mlock2, p, 2 * PAGE, 1) == 0);
    CHECK(madvise(p, PAGE, MADV_PAGEOUT) == 0 && p[0] == 0 && p[PAGE] == 1);
    p[0] = 1;
    pid_t child = copy_of_me();
    struct iovec own = {q, 1}, other = {p, 1};
    q[0] = 9;
    CHECK(child > 0 && vm_read(child, &own, 1, &other, 1, 0) == 1 && q[0] == 0 && end_child(child));
    return NULL;
}

/* Policies of memory, where there is one node. */
static const char *binds(void)
{
    enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, MOVE = 2 };
    char *p = pages(2);
    unsigned long first = 1, second = 2;
    CHECK(p != MAP_FAILED && (p[0] = 1));
    CHECK(syscall(SYS_mbind, p, 2 * PAGE, LOCAL, NULL, 0x7ff, MOVE) == 0 && p[0] == 1);
    CHECK(syscall(SYS_mbind, p, PAGE, BIND, &first, 64, 0) == 0);
    CHECK(syscall(SYS_mbind, p, PAGE, PREFERRED, NULL, 0, 0) == 0);
    CHECK(syscall(SYS_mbind, p, PAGE, DEFAULT, NULL, 0, 0) == 0);
    FAILS(EINVAL, syscall(SYS_mbind, p + 1, PAGE, LOCAL, NULL, 0, 0));
    FAILS(EINVAL, syscall(SYS_mbind, p, PAGE, LOCAL, NULL, 0, 1 << 10));
    FAILS(EINVAL, syscall(SYS_mbind, p, PAGE, BIND, NULL, 0, 0));
    FAILS(EINVAL, syscall(SYS_mbind, p, PAGE, 99, &first, 64, 0));
    FAILS(EINVAL, syscall(SYS_mbind, p, PAGE, LOCAL, &first, 64, 0));
    FAILS(EINVAL, syscall(SYS_mbind, p, PAGE, BIND, &second, 64, 0));
    CHECK(munmap(p + PAGE, PAGE) == 0);
    FAILS(EFAULT, syscall(SYS_mbind, p, 2 * PAGE, LOCAL, NULL, 0, 0));
    return NULL;
}

static const char *pairs(void)
{
    int fd[2];
    char got[16] = {0};
    FAILS(EAFNOSUPPORT, socketpair(99, SOCK_STREAM, 0, fd));
    FAILS(EPROTONOSUPPORT, socketpair(AF_UNIX, SOCK_STREAM, 99, fd));
    FAILS(EFAULT, socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)-4096L));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    struct stat about;
    CHECK(fstat(fd[0], &about) == 0 && S_ISSOCK(about.st_mode));
    CHECK(write(fd[0], "one", 3) == 3 && write(fd[0], "two", 3) == 3);
    CHECK(read(fd[1], got, 16) == 6 && !memcmp(got, "onetwo", 6));
    CHECK(write(fd[1], "back", 4) == 4 && read(fd[0], got, 2) == 2 && read(fd[0], got, 9) == 2);
    FAILS(ESPIPE, lseek(fd[0], 0, SEEK_SET));
    CHECK(close(fd[0]) == 0 && read(fd[1], got, 1) == 0);
    signal(SIGPIPE, SIG_IGN);
    FAILS(EPIPE, write(fd[1], "x", 1));
    return NULL;
}

static const char *packets(void)
{
    int fd[2];
    char got[16] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd) == 0);
    FAILS(EAGAIN, read(fd[0], got, 16));
    struct pollfd both[] = {{fd[0], POLLIN | POLLOUT, 0}, {fd[1], POLLIN, 0}};
    CHECK(poll(both, 2, 0) == 1 && both[0].revents == POLLOUT);
    CHECK(write(fd[0], "first", 5) == 5 && write(fd[0], "second", 6) == 6);
    CHECK(poll(both, 2, 0) == 2 && both[1].revents == POLLIN);
    /* Each packet is read alone, and its bytes without room are lost. */
    CHECK(read(fd[1], got, 3) == 3 && !memcmp(got, "fir", 3));
    CHECK(read(fd[1], got, 16) == 6 && !memcmp(got, "second", 6));
    CHECK(close(fd[0]) == 0 && read(fd[1], got, 16) == 0);
    CHECK(poll(both + 1, 1, 0) == 1 && (both[1].revents & POLLHUP));
    return NULL;
}

const struct abi_case other_cases[] = {
    {"process_vm_readv and writev", moves_between},
    {"process_vm_readv and writev of a part", moves_a_part},
    {"process_vm_readv refuses", refuses_to_move},
    {"/proc/self/mem where only reading is allowed", forces_a_write},
    {"mseal", seals},
    {"mmap MAP_DROPPABLE", drops},
    {"mbind", binds},
    {"socketpair of bytes", pairs},
    {"socketpair of packets", packets},
    {NULL, NULL},
};

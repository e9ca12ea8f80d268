/* Open files: reading, writing, positions, descriptors, pipes. */
#include "abi.h"

#include <sys/ioctl.h>
#include <sys/uio.h>

static const char *open_flags(void)
{
    int fd;
    FAILS(ENOENT, open("f", O_RDONLY));
    CHECK((fd = open("f", O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0);
    FAILS(EEXIST, open("f", O_RDWR | O_CREAT | O_EXCL, 0600));
    CHECK(write(fd, "hello", 5) == 5);
    CHECK(close(fd) == 0);
    FAILS(EBADF, close(fd));
    CHECK((fd = open("f", O_RDONLY | O_TRUNC | O_WRONLY)) >= 0 && lseek(fd, 0, SEEK_END) == 0);
    CHECK(close(fd) == 0);
    FAILS(ENOTDIR, open("f", O_RDONLY | O_DIRECTORY));
    FAILS(ENOTDIR, open("f/g", O_RDONLY));
    FAILS(EISDIR, open(".", O_WRONLY));
    FAILS(ENOENT, open("", O_RDONLY));
    CHECK((fd = openat(AT_FDCWD, "f", O_RDONLY)) >= 0);
    FAILS(ENOTDIR, openat(fd, "f", O_RDONLY));
    FAILS(EBADF, openat(999, "f", O_RDONLY));
    CHECK((fd = openat(999, "/dev/null", O_RDWR)) >= 0);
    return NULL;
}

static const char *long_name(void)
{
    char name[300], path[5000];
    memset(name, 'n', 299);
    name[299] = 0;
    memset(path, '/', 4999);
    path[4999] = 0;
    FAILS(ENAMETOOLONG, open(name, O_RDONLY));
    FAILS(ENAMETOOLONG, open(path, O_RDONLY));
    name[255] = 0;
    FAILS(ENOENT, open(name, O_RDONLY));
    return NULL;
}

static const char *read_write(void)
{
    char bytes[16] = "";
    int fd, only;
    CHECK(make_file("f", "0123456789"));
    CHECK((fd = open("f", O_RDWR)) >= 0);
    CHECK(read(fd, bytes, 4) == 4 && !memcmp(bytes, "0123", 4));
    CHECK(write(fd, "xy", 2) == 2);
    CHECK(read(fd, bytes, 16) == 4 && !memcmp(bytes, "6789", 4));
    CHECK(read(fd, bytes, 16) == 0);
    CHECK(read(fd, bytes, 0) == 0);
    CHECK(pread(fd, bytes, 3, 4) == 3 && !memcmp(bytes, "xy6", 3));
    CHECK(pwrite(fd, "AB", 2, 0) == 2 && lseek(fd, 0, SEEK_CUR) == 10);
    CHECK(pread(fd, bytes, 3, 100) == 0);
    FAILS(EINVAL, pread(fd, bytes, 3, -1));
    CHECK((only = open("f", O_RDONLY)) >= 0);
    FAILS(EBADF, write(only, "x", 1));
    CHECK((only = open("f", O_WRONLY)) >= 0);
    FAILS(EBADF, read(only, bytes, 1));
    FAILS(EBADF, read(999, bytes, 1));
    FAILS(EBADF, write(-1, bytes, 1));
    CHECK((only = open(".", O_RDONLY)) >= 0);
    FAILS(EISDIR, read(only, bytes, 1));
    return NULL;
}

static const char *vectors(void)
{
    char a[4], b[8];
    struct iovec out[2] = {{"abc", 3}, {"defgh", 5}}, in[2] = {{a, 4}, {b, 8}};
    int fd;
    CHECK((fd = open("f", O_RDWR | O_CREAT, 0600)) >= 0);
    CHECK(writev(fd, out, 2) == 8);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, in, 2) == 8);
    CHECK(!memcmp(a, "abcd", 4) && !memcmp(b, "efgh", 4));
    CHECK(preadv(fd, in, 1, 2) == 4 && !memcmp(a, "cdef", 4));
    CHECK(pwritev(fd, out, 1, 8) == 3 && lseek(fd, 0, SEEK_END) == 11);
    CHECK(writev(fd, out, 0) == 0);
    FAILS(EINVAL, syscall(SYS_writev, fd, out, -1));
    FAILS(EINVAL, syscall(SYS_writev, fd, out, 1025));
    FAILS(EBADF, readv(999, in, 1));
    in[0].iov_len = (size_t)-1;
    FAILS(EINVAL, readv(fd, in, 2));
    return NULL;
}

static const char *seeking(void)
{
    int fd, ends[2];
    char byte;
    CHECK(make_file("f", "0123456789"));
    CHECK((fd = open("f", O_RDWR)) >= 0);
    CHECK(lseek(fd, 4, SEEK_SET) == 4 && lseek(fd, 2, SEEK_CUR) == 6);
    CHECK(lseek(fd, -1, SEEK_END) == 9 && read(fd, &byte, 1) == 1 && byte == '9');
    FAILS(EINVAL, lseek(fd, -1, SEEK_SET));
    FAILS(EINVAL, lseek(fd, 0, 99));
    FAILS(EBADF, lseek(999, 0, SEEK_SET));
    CHECK(lseek(fd, 9000, SEEK_SET) == 9000 && write(fd, "z", 1) == 1);
    CHECK(lseek(fd, 0, SEEK_END) == 9001);
    CHECK(pread(fd, &byte, 1, 5000) == 1 && byte == 0);
    CHECK(pipe(ends) == 0);
    FAILS(ESPIPE, lseek(ends[0], 0, SEEK_SET));
    FAILS(ESPIPE, pread(ends[0], &byte, 1, 0));
    return NULL;
}

static const char *appending(void)
{
    int fd;
    CHECK(make_file("f", "123"));
    CHECK((fd = open("f", O_WRONLY | O_APPEND)) >= 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && write(fd, "4", 1) == 1);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4);
    CHECK(fcntl(fd, F_SETFL, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && write(fd, "x", 1) == 1);
    CHECK(lseek(fd, 0, SEEK_END) == 4);
    return NULL;
}

static const char *duplicates(void)
{
    int fd, two;
    char byte;
    CHECK(make_file("f", "0123456789"));
    CHECK((fd = open("f", O_RDONLY | O_CLOEXEC)) >= 0 && (two = dup(fd)) >= 0 && two != fd);
    CHECK(lseek(fd, 5, SEEK_SET) == 5 && read(two, &byte, 1) == 1 && byte == '5');
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(two, F_GETFD) == 0);
    CHECK(dup2(fd, 50) == 50 && read(50, &byte, 1) == 1 && byte == '6');
    CHECK(dup2(fd, fd) == fd);
    CHECK(dup3(fd, 50, O_CLOEXEC) == 50 && fcntl(50, F_GETFD) == FD_CLOEXEC);
    FAILS(EINVAL, dup3(fd, fd, 0));
    FAILS(EINVAL, dup3(fd, 51, O_TRUNC));
    FAILS(EBADF, dup(999));
    FAILS(EBADF, dup2(999, 50));
    FAILS(EBADF, dup2(fd, -1));
    CHECK(fcntl(fd, F_DUPFD, 60) == 60);
    CHECK(fcntl(fd, F_DUPFD_CLOEXEC, 60) == 61 && fcntl(61, F_GETFD) == FD_CLOEXEC);
    FAILS(EINVAL, fcntl(fd, F_DUPFD, -1));
    return NULL;
}

static const char *descriptor_flags(void)
{
    int fd;
    CHECK((fd = open("f", O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0);
    CHECK((fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_RDWR | O_APPEND));
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK((fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK)) == O_NONBLOCK);
    CHECK(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    FAILS(EBADF, fcntl(999, F_GETFL));
    FAILS(EINVAL, fcntl(fd, 9999));
    int lowest = dup(fd);
    CHECK(close(lowest) == 0 && dup(fd) == lowest);
    return NULL;
}

static const char *pipes(void)
{
    int ends[2];
    char bytes[8];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    CHECK(fcntl(ends[0], F_GETFD) == FD_CLOEXEC && (fcntl(ends[1], F_GETFL) & O_NONBLOCK));
    FAILS(EAGAIN, read(ends[0], bytes, 1));
    CHECK(write(ends[1], "abc", 3) == 3 && read(ends[0], bytes, 8) == 3);
    FAILS(EBADF, read(ends[1], bytes, 1));
    FAILS(EBADF, write(ends[0], bytes, 1));
    CHECK(close(ends[1]) == 0 && read(ends[0], bytes, 8) == 0);
    FAILS(EINVAL, pipe2(ends, O_TRUNC));
    return NULL;
}

static const char *pipe_fills_up(void)
{
    int ends[2];
    static char bytes[4096];
    size_t total = 0;
    CHECK(pipe2(ends, O_NONBLOCK) == 0);
    for (ssize_t n; (n = write(ends[1], bytes, sizeof bytes)) > 0;)
        total += (size_t)n;
    CHECK(total == 65536);
    FAILS(EAGAIN, write(ends[1], bytes, 1));
    CHECK(read(ends[0], bytes, sizeof bytes) == sizeof bytes);
    CHECK(write(ends[1], bytes, sizeof bytes) == sizeof bytes);
    return NULL;
}

static const char *broken_pipe(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    FAILS(EPIPE, write(ends[1], "x", 1));
    return NULL;
}

/* A reader that waits gets what a child writes later, across the fork. */
static const char *pipe_between_processes(void)
{
    int ends[2], status;
    char bytes[8];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (!child) {
        sleep_ms(20);
        _exit(write(ends[1], "late", 4) != 4);
    }
    CHECK(close(ends[1]) == 0 && read(ends[0], bytes, 8) == 4 && !memcmp(bytes, "late", 4));
    CHECK(read(ends[0], bytes, 8) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return NULL;
}

static const char *no_terminal(void)
{
    int fd, ends[2];
    struct winsize size;
    CHECK((fd = open("f", O_RDWR | O_CREAT, 0600)) >= 0 && pipe(ends) == 0);
    FAILS(ENOTTY, ioctl(fd, TIOCGWINSZ, &size));
    FAILS(ENOTTY, ioctl(ends[0], TIOCGWINSZ, &size));
    FAILS(EBADF, ioctl(999, TIOCGWINSZ, &size));
    return NULL;
}

static const char *devices(void)
{
    char bytes[8] = "xxxxxxx";
    int fd;
    CHECK((fd = open("/dev/null", O_RDWR)) >= 0);
    CHECK(read(fd, bytes, 8) == 0 && write(fd, bytes, 8) == 8);
    CHECK((fd = open("/dev/zero", O_RDWR)) >= 0 && read(fd, bytes, 8) == 8 && bytes[7] == 0);
    return NULL;
}

const struct abi_case file_cases[] = {
    {"open", open_flags},
    {"open of long names", long_name},
    {"read and write", read_write},
    {"readv and writev", vectors},
    {"lseek", seeking},
    {"O_APPEND", appending},
    {"dup", duplicates},
    {"fcntl", descriptor_flags},
    {"pipe2", pipes},
    {"pipe that fills up", pipe_fills_up},
    {"pipe without a reader", broken_pipe},
    {"pipe between processes", pipe_between_processes},
    {"ioctl without a terminal", no_terminal},
    {"devices null and zero", devices},
    {NULL, NULL},
};

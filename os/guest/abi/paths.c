/* Names: directories, links, attributes. */
#include "abi.h"

#include <dirent.h>
#include <sys/time.h>

static const char *stat_family(void)
{
    struct stat s, t;
    int fd;
    CHECK(make_file("f", "hello"));
    CHECK(stat("f", &s) == 0 && S_ISREG(s.st_mode) && s.st_size == 5 && s.st_nlink == 1);
    CHECK((s.st_mode & 07777) == 0644);
    CHECK((fd = open("f", O_RDONLY)) >= 0 && fstat(fd, &t) == 0 && t.st_ino == s.st_ino);
    CHECK(fstatat(AT_FDCWD, "f", &t, 0) == 0 && t.st_dev == s.st_dev);
    CHECK(fstatat(fd, "", &t, AT_EMPTY_PATH) == 0 && t.st_ino == s.st_ino);
    CHECK(symlink("f", "l") == 0 && lstat("l", &t) == 0 && S_ISLNK(t.st_mode) && t.st_size == 1);
    CHECK(stat("l", &t) == 0 && t.st_ino == s.st_ino);
    CHECK(stat("/dev/null", &t) == 0 && S_ISCHR(t.st_mode));
    CHECK(stat(".", &t) == 0 && S_ISDIR(t.st_mode));
    FAILS(ENOENT, stat("none", &t));
    FAILS(ENOTDIR, stat("f/x", &t));
    FAILS(EBADF, fstat(999, &t));
    FAILS(EINVAL, fstatat(AT_FDCWD, "f", &t, 0x40000000));
    return NULL;
}

static const char *extended_stat(void)
{
    struct statx x;
    CHECK(make_file("f", "hello"));
    CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &x) == 0);
    CHECK((x.stx_mask & STATX_SIZE) && x.stx_size == 5 && S_ISREG(x.stx_mode));
    FAILS(ENOENT, statx(AT_FDCWD, "none", 0, STATX_BASIC_STATS, &x));
    return NULL;
}

static const char *read_directory(void)
{
    char bytes[1024];
    unsigned found = 0;
    int fd;
    CHECK(mkdir("d", 0755) == 0 && make_file("d/a", "") && make_file("d/b", ""));
    CHECK((fd = open("d", O_RDONLY | O_DIRECTORY)) >= 0);
    for (long n; (n = syscall(SYS_getdents64, fd, bytes, sizeof bytes)) > 0;)
        for (long at = 0; at < n;) {
            struct dirent64 *e = (struct dirent64 *)(bytes + at);
            found |= !strcmp(e->d_name, ".") ? 1u : !strcmp(e->d_name, "..") ? 2u
                : !strcmp(e->d_name, "a") ? 4u : !strcmp(e->d_name, "b") ? 8u : 16u;
            at += e->d_reclen;
        }
    CHECK(found == 15);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && syscall(SYS_getdents64, fd, bytes, sizeof bytes) > 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    FAILS(EINVAL, syscall(SYS_getdents64, fd, bytes, 8));
    CHECK((fd = open("d/a", O_RDONLY)) >= 0);
    FAILS(ENOTDIR, syscall(SYS_getdents64, fd, bytes, sizeof bytes));
    FAILS(EBADF, syscall(SYS_getdents64, 999, bytes, sizeof bytes));
    CHECK(unlink("d/a") == 0 && unlink("d/b") == 0 && rmdir("d") == 0);
    return NULL;
}

static const char *directories(void)
{
    struct stat s;
    CHECK(mkdir("d", 0750) == 0 && stat("d", &s) == 0 && S_ISDIR(s.st_mode));
    CHECK((s.st_mode & 07777) == 0750 && s.st_nlink >= 1);
    FAILS(EEXIST, mkdir("d", 0755));
    FAILS(ENOENT, mkdir("none/d", 0755));
    CHECK(make_file("d/f", "x"));
    FAILS(ENOTEMPTY, rmdir("d"));
    FAILS(ENOTDIR, rmdir("d/f"));
    FAILS(EISDIR, unlink("d"));
    FAILS(ENOENT, unlink("none"));
    FAILS(ENOENT, rmdir("none"));
    CHECK(unlinkat(AT_FDCWD, "d/f", 0) == 0 && unlinkat(AT_FDCWD, "d", AT_REMOVEDIR) == 0);
    FAILS(ENOENT, stat("d", &s));
    return NULL;
}

/* An open file lives on when its name goes. */
static const char *unlinked(void)
{
    struct stat s;
    char byte;
    int fd;
    CHECK(make_file("f", "x") && (fd = open("f", O_RDWR)) >= 0 && unlink("f") == 0);
    CHECK(fstat(fd, &s) == 0 && s.st_nlink == 0);
    CHECK(read(fd, &byte, 1) == 1 && byte == 'x');
    FAILS(ENOENT, open("f", O_RDONLY));
    return NULL;
}

static const char *renames(void)
{
    struct stat s;
    CHECK(make_file("a", "one") && make_file("b", "three"));
    CHECK(rename("a", "b") == 0 && stat("b", &s) == 0 && s.st_size == 3);
    FAILS(ENOENT, stat("a", &s));
    FAILS(ENOENT, rename("a", "c"));
    CHECK(mkdir("d", 0755) == 0 && rename("b", "d/e") == 0 && stat("d/e", &s) == 0);
    CHECK(make_file("f", ""));
    FAILS(ENOTDIR, rename("d", "f"));
    FAILS(EISDIR, rename("f", "d"));
    FAILS(EINVAL, rename("d", "d/sub"));
    CHECK(mkdir("g", 0755) == 0);
    FAILS(ENOTEMPTY, rename("g", "d"));
    CHECK(unlink("d/e") == 0 && rename("g", "d") == 0 && rmdir("d") == 0);
    CHECK(rename("f", "f") == 0);
    return NULL;
}

static const char *links(void)
{
    struct stat s, t;
    char text[16];
    CHECK(make_file("f", "x") && link("f", "g") == 0);
    CHECK(stat("f", &s) == 0 && stat("g", &t) == 0 && s.st_ino == t.st_ino && t.st_nlink == 2);
    FAILS(EEXIST, link("f", "g"));
    FAILS(ENOENT, link("none", "h"));
    CHECK(symlink("f", "l") == 0 && readlink("l", text, 16) == 1 && text[0] == 'f');
    FAILS(EEXIST, symlink("f", "l"));
    FAILS(EINVAL, readlink("f", text, 16));
    FAILS(ENOENT, readlink("none", text, 16));
    CHECK(symlink("longname", "m") == 0 && readlink("m", text, 4) == 4);
    FAILS(ENOENT, open("m", O_RDONLY));
    CHECK(symlink("loop", "loop") == 0);
    FAILS(ELOOP, open("loop", O_RDONLY));
    FAILS(ELOOP, open("l", O_RDONLY | O_NOFOLLOW));
    CHECK(unlink("l") == 0 && stat("f", &s) == 0);
    return NULL;
}

static const char *truncation(void)
{
    struct stat s;
    char byte = 1;
    int fd;
    CHECK(make_file("f", "0123456789"));
    CHECK(truncate("f", 4) == 0 && stat("f", &s) == 0 && s.st_size == 4);
    CHECK((fd = open("f", O_RDWR)) >= 0 && ftruncate(fd, 9000) == 0);
    CHECK(pread(fd, &byte, 1, 4) == 1 && byte == 0 && fstat(fd, &s) == 0 && s.st_size == 9000);
    FAILS(EINVAL, ftruncate(fd, -1));
    FAILS(EINVAL, truncate("f", -1));
    FAILS(ENOENT, truncate("none", 1));
    FAILS(EISDIR, truncate(".", 1));
    CHECK((fd = open("f", O_RDONLY)) >= 0);
    FAILS(EINVAL, ftruncate(fd, 1));
    FAILS(EBADF, ftruncate(999, 1));
    return NULL;
}

static const char *accesses(void)
{
    CHECK(make_file("f", "") && access("f", F_OK) == 0 && access("f", R_OK | W_OK) == 0);
    FAILS(ENOENT, access("none", F_OK));
    FAILS(EINVAL, access("f", 99));
    CHECK(faccessat(AT_FDCWD, "f", R_OK, 0) == 0);
    /* Not even root may execute a file without an execute bit. */
    FAILS(EACCES, access("f", X_OK));
    return NULL;
}

static const char *current_directory(void)
{
    char path[256], again[256], small[2];
    int fd;
    CHECK(getcwd(path, sizeof path) == path && path[0] == '/');
    CHECK(mkdir("d", 0755) == 0 && chdir("d") == 0 && getcwd(again, sizeof again));
    CHECK(strlen(again) == strlen(path) + 2 && !strcmp(again + strlen(path), "/d"));
    FAILS(ERANGE, syscall(SYS_getcwd, small, 2));
    CHECK((fd = open("..", O_RDONLY)) >= 0 && fchdir(fd) == 0);
    CHECK(syscall(SYS_getcwd, again, sizeof again) == (long)strlen(path) + 1);
    FAILS(ENOENT, chdir("none"));
    CHECK(make_file("f", "") && (fd = open("f", O_RDONLY)) >= 0);
    FAILS(ENOTDIR, chdir("f"));
    FAILS(ENOTDIR, fchdir(fd));
    FAILS(EBADF, fchdir(999));
    return NULL;
}

static const char *modes(void)
{
    struct stat s;
    int fd;
    CHECK(make_file("f", "") && chmod("f", 0640) == 0 && stat("f", &s) == 0);
    CHECK((s.st_mode & 07777) == 0640);
    CHECK((fd = open("f", O_RDONLY)) >= 0 && fchmod(fd, 0755) == 0 && fstat(fd, &s) == 0);
    CHECK((s.st_mode & 07777) == 0755);
    FAILS(ENOENT, chmod("none", 0644));
    FAILS(EBADF, fchmod(999, 0644));
    CHECK(umask(077) == 022 && umask(027) == 077);
    CHECK((fd = open("g", O_CREAT | O_RDWR, 0666)) >= 0 && fstat(fd, &s) == 0);
    CHECK((s.st_mode & 07777) == 0640);
    return NULL;
}

static const char *times(void)
{
    struct stat s;
    struct timespec when[2] = {{1000, 5}, {2000, 7}};
    CHECK(make_file("f", "") && utimensat(AT_FDCWD, "f", when, 0) == 0 && stat("f", &s) == 0);
    CHECK(s.st_atim.tv_sec == 1000 && s.st_mtim.tv_sec == 2000 && s.st_mtim.tv_nsec == 7);
    when[0].tv_nsec = UTIME_OMIT;
    when[1].tv_nsec = UTIME_NOW;
    CHECK(utimensat(AT_FDCWD, "f", when, 0) == 0 && stat("f", &s) == 0);
    CHECK(s.st_atim.tv_sec == 1000 && s.st_mtim.tv_sec > 2000);
    when[0].tv_nsec = 2000000000;
    FAILS(EINVAL, utimensat(AT_FDCWD, "f", when, 0));
    FAILS(ENOENT, utimensat(AT_FDCWD, "none", NULL, 0));
    return NULL;
}

const struct abi_case path_cases[] = {
    {"stat", stat_family},
    {"statx", extended_stat},
    {"getdents64", read_directory},
    {"mkdir, rmdir and unlink", directories},
    {"unlink of an open file", unlinked},
    {"rename", renames},
    {"link, symlink and readlink", links},
    {"truncate", truncation},
    {"access", accesses},
    {"chdir and getcwd", current_directory},
    {"chmod and umask", modes},
    {"utimensat", times},
    {NULL, NULL},
};

/* Memory that a watcher protects from writes: userfaultfd, and PAGEMAP_SCAN. */
#include "abi.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

enum { PAGES = 40, WP_SHARED = 1 << 12 };

/* As in linux/userfaultfd.h and linux/fs.h of newer headers. */
struct poison {
    struct uffdio_range range;
    __u64 mode;
    __s64 updated;
};
struct region {
    __u64 start, end, categories;
};
struct scan {
    __u64 size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, all_of, any_of,
        returned;
};
#define POISON_PAGES _IOWR(UFFDIO, 8, struct poison)
#define SCAN_PAGES _IOWR('f', 16, struct scan)
enum { MAY_PROTECT = 1, WRITTEN = 2 };
enum { SCAN_PROTECT = 1, SCAN_MUST_PROTECT = 2 };

/* A watcher with these features; -1 if there is none. */
static int watcher(__u64 features)
{
    struct uffdio_api api = {UFFD_API, features, 0};
    int fd = (int)syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || ioctl(fd, UFFDIO_API, &api) ? -1 : fd;
}

static int watch(int fd, char *start, size_t count, __u64 mode)
{
    struct uffdio_register all = {{(__u64)start, count * PAGE}, mode, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &all))
        return -1;
    bool can = all.ioctls >> _UFFDIO_WRITEPROTECT & 1;
    return can == !!(mode & UFFDIO_REGISTER_MODE_WP) ? 0 : -1;
}

static int protect(int fd, char *start, size_t count, __u64 mode)
{
    struct uffdio_writeprotect all = {{(__u64)start, count * PAGE}, mode};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &all);
}

static void *write_to(void *at)
{
    *(volatile char *)at = 7;
    return NULL;
}

static bool told(int fd, struct uffd_msg *message)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 1000) == 1 && read(fd, message, sizeof *message) == sizeof *message;
}

/* A thread that writes a protected page sleeps until the page is released; readers go on. */
static const char *writes_are_told(void)
{
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    char *p = pages(PAGES);
    CHECK(fd >= 0 && p != MAP_FAILED);
    FAILS(ENOENT, protect(fd, p, PAGES, UFFDIO_WRITEPROTECT_MODE_WP));
    memset(p, 3, 30 * PAGE);
    CHECK(watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_WP) == 0);
    FAILS(EINVAL, protect(fd, p, PAGES, 3));
    FAILS(EINVAL, protect(fd, p + 1, 1, UFFDIO_WRITEPROTECT_MODE_WP));
    CHECK(protect(fd, p, PAGES, UFFDIO_WRITEPROTECT_MODE_WP) == 0);
    for (int at = 0; at < 30; at++)
        CHECK(p[at * PAGE] == 3);
    for (int at = 4; at < 6; at++) {
        struct uffd_msg message;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, write_to, p + at * PAGE) == 0 && told(fd, &message));
        CHECK(message.event == UFFD_EVENT_PAGEFAULT);
        CHECK(message.arg.pagefault.address == (__u64)(p + at * PAGE));
        CHECK(message.arg.pagefault.flags
              == (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP));
        CHECK(p[at * PAGE] == 3);
        CHECK(protect(fd, p + at * PAGE, 1, 0) == 0);
        CHECK(pthread_join(thread, NULL) == 0 && p[at * PAGE] == 7);
    }
    p[35 * PAGE] = 1; /* An absent page is not protected without that feature. */
    CHECK(protect(fd, p, PAGES, UFFDIO_WRITEPROTECT_MODE_DONTWAKE) == 0);
    memset(p, 1, PAGES * PAGE);
    return NULL;
}

/* A call of the kernel that writes there waits as well. */
static void *read_into(void *at)
{
    int fd = open("zeroes", O_RDONLY);
    return (void *)read(fd, at, 2 * PAGE);
}

static const char *calls_wait(void)
{
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    char *p = pages(2);
    struct uffd_msg message;
    pthread_t thread;
    void *got = NULL;
    CHECK(fd >= 0 && p != MAP_FAILED);
    CHECK(make_file("zeroes", "") && truncate("zeroes", 2 * PAGE) == 0);
    memset(p, 3, 2 * PAGE);
    CHECK(watch(fd, p, 2, UFFDIO_REGISTER_MODE_WP) == 0);
    CHECK(protect(fd, p, 2, UFFDIO_WRITEPROTECT_MODE_WP) == 0);
    CHECK(pthread_create(&thread, NULL, read_into, p) == 0 && told(fd, &message));
    CHECK(protect(fd, p, 2, 0) == 0 && pthread_join(thread, &got) == 0);
    CHECK(got == (void *)(2 * PAGE) && p[0] == 0 && p[PAGE] == 0);
    return NULL;
}

/* Protection, fork, mremap, mprotect and MADV_DONTNEED. */
static const char *protection_stays(void)
{
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED), status;
    char *p = pages(PAGES);
    struct uffd_msg message;
    pthread_t thread;
    CHECK(fd >= 0 && p != MAP_FAILED);
    memset(p, 3, 20 * PAGE);
    CHECK(watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_WP) == 0);
    CHECK(protect(fd, p, PAGES, UFFDIO_WRITEPROTECT_MODE_WP) == 0);
    CHECK(mprotect(p, PAGES * PAGE, PROT_READ) == 0);
    CHECK(mprotect(p, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    pid_t child = fork();
    if (!child) {
        p[PAGE] = p[30 * PAGE] = 1;
        _exit(p[PAGE] + p[2 * PAGE] + p[30 * PAGE]);
    }
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    /* One that is there, and one that never was. */
    for (int at = 1; at < 40; at += 29) {
        CHECK(pthread_create(&thread, NULL, write_to, p + at * PAGE) == 0 && told(fd, &message));
        CHECK(message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
        CHECK(protect(fd, p + at * PAGE, 1, 0) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(p[at * PAGE] == 7);
    }
    CHECK(madvise(p + 4 * PAGE, PAGE, MADV_DONTNEED) == 0);
    p[4 * PAGE] = 1; /* Its content went, and its protection with it. */
    char *q = mremap(p + 8 * PAGE, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(4));
    CHECK(q != MAP_FAILED && q[0] == 3);
    q[0] = 4;
    CHECK(close(fd) == 0);
    p[2 * PAGE] = 9;
    return NULL;
}

/* Pages that a watcher copies in protected, and pages that it makes fail. */
static char *poisoned;

static void touch_poisoned(void)
{
    *(volatile char *)poisoned;
}

static const char *answers(void)
{
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_POISON), status;
    char *p = pages(PAGES), *from = pages(4);
    struct uffd_msg message;
    pthread_t thread;
    CHECK(fd >= 0 && p != MAP_FAILED && from != MAP_FAILED);
    memset(from, 6, 4 * PAGE);
    __u64 both = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
    CHECK(watch(fd, p, 20, both) == 0 && watch(fd, p + 20 * PAGE, 20, 1) == 0);
    struct uffdio_copy copy = {(__u64)p, (__u64)from, 4 * PAGE, UFFDIO_COPY_MODE_WP, 0};
    CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0 && copy.copy == 4 * PAGE && p[PAGE] == 6);
    CHECK(pthread_create(&thread, NULL, write_to, p + PAGE) == 0 && told(fd, &message));
    CHECK(message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
    CHECK(protect(fd, p, 4, 0) == 0 && pthread_join(thread, NULL) == 0 && p[PAGE] == 7);
    copy.dst += 20 * PAGE;
    FAILS(EINVAL, ioctl(fd, UFFDIO_COPY, &copy));
    struct poison bad = {{(__u64)(p + 8 * PAGE), 2 * PAGE}, 0, 0};
    CHECK(ioctl(fd, POISON_PAGES, &bad) == 0 && bad.updated == 2 * PAGE);
    FAILS(EEXIST, ioctl(fd, POISON_PAGES, &bad));
    CHECK(bad.updated == -EEXIST);
    poisoned = p + 9 * PAGE;
    /* A child inherits it, though it is not watched. */
    status = status_of(touch_poisoned);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    CHECK(madvise(p + 8 * PAGE, 2 * PAGE, MADV_DONTNEED) == 0);
    return NULL;
}

/* Shared memory: the pages of a file that another mapping wrote are protected as well. */
static const char *shared_memory(void)
{
    int file = (int)syscall(SYS_memfd_create, "f", 0);
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP | WP_SHARED);
    CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0 && fd >= 0);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *own = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct uffd_msg message;
    pthread_t thread;
    CHECK(p != MAP_FAILED && own != MAP_FAILED);
    memset(p, 3, 4 * PAGE);
    CHECK(watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_WP) == 0);
    CHECK(protect(fd, p, PAGES, UFFDIO_WRITEPROTECT_MODE_WP) == 0);
    memset(own, 5, 8 * PAGE);
    CHECK(p[PAGE] == 5 && p[7 * PAGE] == 5);
    CHECK(madvise(p, PAGES * PAGE, MADV_DONTNEED) == 0);
    for (int at = 1; at < 32; at += 6) {
        CHECK(pthread_create(&thread, NULL, write_to, p + at * PAGE) == 0 && told(fd, &message));
        CHECK(message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP);
        CHECK(protect(fd, p + at * PAGE, 1, 0) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(own[at * PAGE] == 7);
    }
    CHECK(protect(fd, p, PAGES, 0) == 0);
    memset(p, 1, PAGES * PAGE);
    return NULL;
}

/* The regions of a scan, or -errno. */
static int scan_for(char *p, __u64 flags, __u64 mask, struct region *found, int most)
{
    int fd = open("/proc/self/pagemap", O_RDONLY);
    struct scan all = {sizeof all, flags, (__u64)p, (__u64)(p + PAGES * PAGE), 0, (__u64)found,
                       (__u64)most, 0, 0, mask, 0, mask};
    int result = ioctl(fd, SCAN_PAGES, &all);
    result = result < 0 ? -errno : result;
    close(fd);
    return result;
}

/* Writes that no watcher is told of: PAGEMAP_SCAN finds them, and protects again. */
static const char *written_pages(void)
{
    int fd = watcher(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    char *p = pages(PAGES);
    struct region found[8];
    CHECK(fd >= 0 && p != MAP_FAILED);
    memset(p, 1, 20 * PAGE);
    CHECK(scan_for(p, SCAN_PROTECT | SCAN_MUST_PROTECT, WRITTEN, found, 8) == -EPERM);
    CHECK(watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_WP) == 0);
    CHECK(scan_for(p, 0, MAY_PROTECT, found, 8) == 1);
    CHECK(found[0].start == (__u64)p && found[0].end == (__u64)(p + PAGES * PAGE));
    CHECK(scan_for(p, SCAN_PROTECT | SCAN_MUST_PROTECT, WRITTEN, found, 8) == 1);
    CHECK(scan_for(p, 0, WRITTEN, found, 8) == 0);
    p[3 * PAGE] = p[4 * PAGE] = p[12 * PAGE] = p[33 * PAGE] = 2;
    CHECK(p[5 * PAGE] == 1 && p[39 * PAGE] == 0);
    CHECK(scan_for(p, SCAN_PROTECT, WRITTEN, found, 8) == 3);
    CHECK(found[0].start == (__u64)(p + 3 * PAGE) && found[0].end == (__u64)(p + 5 * PAGE));
    CHECK(found[1].start == (__u64)(p + 12 * PAGE) && found[1].end == (__u64)(p + 13 * PAGE));
    CHECK(found[2].start == (__u64)(p + 33 * PAGE) && found[2].categories == WRITTEN);
    CHECK(scan_for(p, SCAN_PROTECT, WRITTEN, found, 8) == 0);
    p[4 * PAGE] = 3;
    CHECK(scan_for(p, SCAN_PROTECT, WRITTEN, NULL, 0) == 0);
    CHECK(scan_for(p, 0, WRITTEN, found, 8) == 0);
    return NULL;
}

/* The same in a private mapping of a file, with and without copies of its pages. */
static const char *written_file_pages(void)
{
    int fd = watcher(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    int file = memfd_create("pages", 0);
    CHECK(fd >= 0 && file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    struct region found[8];
    CHECK(p != MAP_FAILED && pwrite(file, "abc", 3, 3 * PAGE) == 3);
    p[10 * PAGE] = 1;
    CHECK(watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_WP) == 0);
    CHECK(scan_for(p, SCAN_PROTECT | SCAN_MUST_PROTECT, 0, found, 8) >= 1);
    CHECK(scan_for(p, 0, WRITTEN, found, 8) == 0);
    CHECK(p[3 * PAGE] == 'a' && p[10 * PAGE] == 1);
    CHECK(scan_for(p, 0, WRITTEN, found, 8) == 0);
    p[3 * PAGE] = p[10 * PAGE] = 5;
    CHECK(scan_for(p, SCAN_PROTECT, WRITTEN, found, 8) == 2);
    CHECK(found[0].start == (__u64)(p + 3 * PAGE) && found[1].start == (__u64)(p + 10 * PAGE));
    CHECK(p[3 * PAGE + 1] == 'b' && scan_for(p, 0, WRITTEN, found, 8) == 0);
    CHECK(madvise(p, PAGES * PAGE, MADV_DONTNEED) == 0 && p[3 * PAGE] == 'a');
    return NULL;
}

const struct abi_case protected_cases[] = {
    {"userfaultfd UFFDIO_WRITEPROTECT", writes_are_told},
    {"userfaultfd and calls that write", calls_wait},
    {"userfaultfd UFFDIO_WRITEPROTECT and other calls", protection_stays},
    {"userfaultfd UFFDIO_COPY_MODE_WP and UFFDIO_POISON", answers},
    {"userfaultfd UFFDIO_WRITEPROTECT of shared memory", shared_memory},
    {"userfaultfd with UFFD_FEATURE_WP_ASYNC", written_pages},
    {"userfaultfd with UFFD_FEATURE_WP_ASYNC of a private file", written_file_pages},
    {NULL, NULL},
};

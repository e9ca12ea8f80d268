/* Reserved folios (hugetlb) that another thread watches or protects: userfaultfd, PAGEMAP_SCAN. */
#include "abi.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#define SIZE ((size_t)2 << 20)

/* As in linux/fs.h of newer headers. */
struct region {
    __u64 start, end, categories;
};
struct scan {
    __u64 size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, all_of, any_of,
        returned;
};
#define SCAN_PAGES _IOWR('f', 16, struct scan)
enum { WRITTEN = 2, HUGE_PAGES = 64, PROTECTS = 3 };

static int watcher(__u64 features)
{
    struct uffdio_api api = {UFFD_API, features, 0};
    int fd = (int)syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || ioctl(fd, UFFDIO_API, &api) ? -1 : fd;
}

/* Registers folios; the requests that are possible then, or 0. */
static __u64 watch(int fd, char *start, size_t count, __u64 mode)
{
    struct uffdio_register all = {{(__u64)start, count * SIZE}, mode, 0};
    return ioctl(fd, UFFDIO_REGISTER, &all) ? 0 : all.ioctls;
}

static long long copy(int fd, char *to, char *from, size_t bytes)
{
    struct uffdio_copy all = {(__u64)to, (__u64)from, bytes, 0, 0};
    return ioctl(fd, UFFDIO_COPY, &all) ? all.copy : (long long)bytes;
}

static int protect(int fd, char *start, size_t bytes, __u64 mode)
{
    struct uffdio_writeprotect all = {{(__u64)start, bytes}, mode};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &all);
}

static bool told(int fd, char *address, __u64 flags)
{
    struct uffd_msg message;
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 1000) == 1 && read(fd, &message, sizeof message) == sizeof message
           && message.event == UFFD_EVENT_PAGEFAULT
           && message.arg.pagefault.address == (__u64)address
           && message.arg.pagefault.flags == flags;
}

static void *store(void *at)
{
    return (void *)(long)(*(volatile char *)at = 7);
}

static char *folios(size_t count, int flags)
{
    char *p = mmap(NULL, count * SIZE, PROT_READ | PROT_WRITE,
                   flags | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static const char *missing_of(int flags)
{
    int fd = watcher(0);
    char *p = folios(2, flags), *from = pages(2 * SIZE / PAGE);
    CHECK(fd >= 0 && p && from != MAP_FAILED);
    memset(from, 5, SIZE);
    memset(from + SIZE, 6, SIZE);
    struct uffdio_register half = {{(__u64)p, PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    FAILS(EINVAL, ioctl(fd, UFFDIO_REGISTER, &half));
    __u64 can = watch(fd, p, 2, UFFDIO_REGISTER_MODE_MISSING);
    CHECK(can >> _UFFDIO_COPY & 1 && !(can >> _UFFDIO_ZEROPAGE & 1));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, store, p + 9 * PAGE + 5) == 0);
    CHECK(told(fd, p, UFFD_PAGEFAULT_FLAG_WRITE));
    CHECK(copy(fd, p, from, PAGE) == -EINVAL);
    struct uffdio_zeropage zero = {{(__u64)p, SIZE}, 0, 0};
    FAILS(EINVAL, ioctl(fd, UFFDIO_ZEROPAGE, &zero));
    CHECK(copy(fd, p, from, 2 * SIZE) == 2 * (long long)SIZE);
    CHECK(pthread_join(thread, NULL) == 0 && p[9 * PAGE + 5] == 7 && p[0] == 5);
    CHECK(p[SIZE] == 6 && p[2 * SIZE - 1] == 6 && copy(fd, p, from, SIZE) == -EEXIST);
    CHECK(munmap(p, 2 * SIZE) == 0 && munmap(from, 2 * SIZE) == 0 && close(fd) == 0);
    return NULL;
}

static const char *missing(void)
{
    CHECK(set_pool(2));
    const char *shared = missing_of(MAP_SHARED), *own = missing_of(MAP_PRIVATE);
    CHECK(set_pool(0));
    return shared ? shared : own;
}

/* A folio that one mapping of the file has: another takes it over when its watcher says so. */
static const char *minor(void)
{
    CHECK(set_pool(1));
    int fd = watcher(0), file = memfd_create("pages", MFD_HUGETLB);
    CHECK(fd >= 0 && file >= 0 && ftruncate(file, SIZE) == 0);
    int prot = PROT_READ | PROT_WRITE;
    char *p = mmap(NULL, SIZE, prot, MAP_SHARED, file, 0);
    char *q = mmap(NULL, SIZE, prot, MAP_SHARED, file, 0);
    CHECK(p != MAP_FAILED && q != MAP_FAILED && (p[PAGE] = 3));
    CHECK(watch(fd, q, 1, UFFDIO_REGISTER_MODE_MINOR) >> _UFFDIO_CONTINUE & 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, store, q + 5) == 0);
    CHECK(told(fd, q, UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_MINOR));
    struct uffdio_continue all = {{(__u64)q, SIZE}, 0, 0};
    CHECK(ioctl(fd, UFFDIO_CONTINUE, &all) == 0 && all.mapped == (long long)SIZE);
    CHECK(pthread_join(thread, NULL) == 0 && q[PAGE] == 3 && p[5] == 7);
    CHECK(munmap(p, SIZE) == 0 && munmap(q, SIZE) == 0 && close(file) == 0 && set_pool(0));
    return NULL;
}

static const char *protection(void)
{
    CHECK(set_pool(2));
    int fd = watcher(UFFD_FEATURE_WP_UNPOPULATED);
    char *p = folios(2, MAP_PRIVATE);
    CHECK(fd >= 0 && p && (p[0] = 1));
    CHECK(watch(fd, p, 2, UFFDIO_REGISTER_MODE_WP) >> _UFFDIO_WRITEPROTECT & 1);
    FAILS(EINVAL, protect(fd, p, PAGE, UFFDIO_WRITEPROTECT_MODE_WP));
    CHECK(protect(fd, p, 2 * SIZE, UFFDIO_WRITEPROTECT_MODE_WP) == 0 && p[0] == 1);
    for (int at = 0; at < 2; at++) {
        char *folio = p + at * SIZE;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, store, folio + 3 * PAGE) == 0);
        CHECK(told(fd, folio, UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP));
        CHECK(folio[3 * PAGE] == 0 && protect(fd, folio, SIZE, 0) == 0);
        CHECK(pthread_join(thread, NULL) == 0 && folio[3 * PAGE] == 7);
    }
    CHECK(munmap(p, 2 * SIZE) == 0 && close(fd) == 0 && set_pool(0));
    return NULL;
}

/* How many regions of written folios there are in `count`; protects them again. */
static int written(char *p, size_t count, __u64 most, struct region *found, char **end)
{
    struct scan all = {.size = sizeof all, .flags = PROTECTS, .start = (__u64)p,
                       .end = (__u64)(p + count * SIZE), .vec = (__u64)found, .vec_len = 4,
                       .max_pages = most, .all_of = WRITTEN, .returned = WRITTEN | HUGE_PAGES};
    int fd = open("/proc/self/pagemap", O_RDONLY), told = ioctl(fd, SCAN_PAGES, &all);
    *end = (char *)all.walk_end;
    return close(fd) ? -1 : told;
}

static const char *scans(void)
{
    CHECK(set_pool(3));
    int fd = watcher(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    char *p = folios(3, MAP_PRIVATE), *end;
    struct region found[4];
    CHECK(fd >= 0 && p);
    for (int at = 0; at < 3; at++)
        p[at * SIZE] = 1;
    CHECK(watch(fd, p, 3, UFFDIO_REGISTER_MODE_WP) && written(p, 3, 0, found, &end) == 1);
    CHECK(found[0].start == (__u64)p && found[0].end == (__u64)(p + 3 * SIZE));
    CHECK(found[0].categories == (WRITTEN | HUGE_PAGES));
    CHECK(written(p, 3, 0, found, &end) == 0 && end == p + 3 * SIZE);
    p[SIZE + 5 * PAGE] = p[2 * SIZE] = 2;
    CHECK(written(p, 3, SIZE / PAGE + 1, found, &end) == 1 && end == p + 2 * SIZE);
    CHECK(found[0].start == (__u64)(p + SIZE) && found[0].end == (__u64)(p + 2 * SIZE));
    CHECK(written(p, 3, 0, found, &end) == 1 && found[0].start == (__u64)(p + 2 * SIZE));
    CHECK(munmap(p, 3 * SIZE) == 0 && close(fd) == 0 && set_pool(0));
    return NULL;
}

const struct abi_case watched_reserved_cases[] = {
    {"userfaultfd of reserved folios", missing},
    {"userfaultfd and UFFDIO_CONTINUE of reserved folios", minor},
    {"userfaultfd UFFDIO_WRITEPROTECT of reserved folios", protection},
    {"PAGEMAP_SCAN of reserved folios", scans},
    {NULL, NULL},
};

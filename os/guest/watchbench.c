/* watchbench: a userfaultfd watcher: what it costs to protect a region from writes, to release it,
 * to fill it in runs, and a write that is noted. */
#include "common.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

enum { RUN_BYTES = 64 * KIB, NOTED_STRIDE = 16 };

static int watcher(__u64 features)
{
    struct uffdio_api api = {UFFD_API, features, 0};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
        failed("userfaultfd");
    return fd;
}

static void watch(int fd, char *region, size_t bytes, __u64 mode)
{
    struct uffdio_register all = {{(__u64)region, bytes}, mode, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &all))
        failed("UFFDIO_REGISTER");
}

static void protect(int fd, char *region, size_t bytes, __u64 mode)
{
    struct uffdio_writeprotect all = {{(__u64)region, bytes}, mode};
    if (ioctl(fd, UFFDIO_WRITEPROTECT, &all))
        failed("UFFDIO_WRITEPROTECT");
}

static double per_page(uint64_t start, size_t pages)
{
    return (double)(now_ns() - start) / (double)pages;
}

/* Protects memory that is there, and releases it. */
static void arming(const struct options *o, const char *size)
{
    double armed[MAX_ROUNDS], released[MAX_ROUNDS];
    char *region = map_region(o->bytes, size);
    int fd = watcher(UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    touch_pages(region, o->bytes, 1);
    watch(fd, region, o->bytes, UFFDIO_REGISTER_MODE_WP);
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t start = now_ns();
        protect(fd, region, o->bytes, UFFDIO_WRITEPROTECT_MODE_WP);
        armed[round] = per_page(start, o->bytes / PAGE);
        start = now_ns();
        protect(fd, region, o->bytes, 0);
        released[round] = per_page(start, o->bytes / PAGE);
        touch_pages(region, o->bytes, 2);
    }
    munmap(region, o->bytes);
    close(fd);
    figure(size, "watch-arm", median(armed, o->rounds), "ns/page");
    figure(size, "watch-release", median(released, o->rounds), "ns/page");
}

/* Writes to protected pages that end their protection. */
static void noting(const struct options *o, const char *size)
{
    double values[MAX_ROUNDS];
    char *region = map_region(o->bytes, size);
    int fd = watcher(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    touch_pages(region, o->bytes, 1);
    watch(fd, region, o->bytes, UFFDIO_REGISTER_MODE_WP);
    for (size_t round = 0; round < o->rounds; round++) {
        protect(fd, region, o->bytes, UFFDIO_WRITEPROTECT_MODE_WP);
        size_t pages = 0;
        uint64_t start = now_ns();
        for (size_t at = 0; at < o->bytes; at += NOTED_STRIDE * PAGE, pages++)
            *(volatile char *)(region + at) = 1;
        values[round] = per_page(start, pages);
    }
    munmap(region, o->bytes);
    close(fd);
    figure(size, "watch-noted-write", median(values, o->rounds), "ns/page");
}

/* Fills missing memory in runs, as a watcher does. */
static void filling(const struct options *o, const char *size)
{
    double copied[MAX_ROUNDS], zeroed[MAX_ROUNDS];
    char *region = map_region(o->bytes, size), *from = map_region(RUN_BYTES, size);
    int fd = watcher(0);
    touch_pages(from, RUN_BYTES, 1);
    watch(fd, region, o->bytes, UFFDIO_REGISTER_MODE_MISSING);
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t start = now_ns();
        for (size_t at = 0; at < o->bytes; at += RUN_BYTES) {
            struct uffdio_copy run = {(__u64)(region + at), (__u64)from, RUN_BYTES, 0, 0};
            if (ioctl(fd, UFFDIO_COPY, &run))
                failed("UFFDIO_COPY");
        }
        copied[round] = per_page(start, o->bytes / PAGE);
        if (madvise(region, o->bytes, MADV_DONTNEED))
            failed("madvise");
        start = now_ns();
        for (size_t at = 0; at < o->bytes; at += RUN_BYTES) {
            struct uffdio_zeropage run = {{(__u64)(region + at), RUN_BYTES}, 0, 0};
            if (ioctl(fd, UFFDIO_ZEROPAGE, &run))
                failed("UFFDIO_ZEROPAGE");
        }
        zeroed[round] = per_page(start, o->bytes / PAGE);
        if (madvise(region, o->bytes, MADV_DONTNEED))
            failed("madvise");
    }
    munmap(region, o->bytes);
    close(fd);
    figure(size, "watch-copy-64K", median(copied, o->rounds), "ns/page");
    figure(size, "watch-zero-64K", median(zeroed, o->rounds), "ns/page");
}

int main(int argc, char **argv)
{
    program_name = "watchbench";
    struct options o = options(argc, argv, 16);
    for (size_t i = 0; i < o.size_count; i++) {
        const char *size = o.sizes[i];
        only_thp(&o, size);
        arming(&o, size);
        noting(&o, size);
        filling(&o, size);
    }
    return 0;
}

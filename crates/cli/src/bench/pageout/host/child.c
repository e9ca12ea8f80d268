/* The process whose memory goes out: child SIZE-KIB REGION-BYTES ROUNDS STAMP GROUP
 *
 * Its input is a sample of data, which fills the region again and again; with STAMP 1 each page
 * begins with its number. For each round it prints a line of six numbers:
 *
 *     OUT-NS OUT-CPU-NS IN-NS IN-CPU-NS SWAPPED GONE
 *
 * SWAPPED and GONE are pages after MADV_PAGEOUT: those that are no longer mapped, and of them those
 * that are no longer in memory when the touches begin. A device that answers later leaves pages in
 * the swap cache; GROUP is a memory cgroup that is told to give them up, or `-`. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)
#define STAMP_BYTES 8
#define SETTLE_ROUNDS 200
#define SETTLE_US 10000
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static char *sample, *region;
static size_t sample_bytes, region_bytes;
static int stamps;
static const char *group;

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s", what, strerror(errno));
    exit(1);
}

static double clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void read_sample(void)
{
    size_t room = 0;
    for (ssize_t length = 1; length > 0; sample_bytes += (size_t)length) {
        if (sample_bytes == room)
            sample = realloc(sample, room += HUGE_BYTES);
        check(sample != NULL, "realloc");
        length = read(0, sample + sample_bytes, room - sample_bytes);
        check(length >= 0, "read");
    }
    check(sample_bytes >= PAGE && sample_bytes % PAGE == 0, "the sample is of no whole pages");
}

/* Page `number` as it must be, the same each time. */
static const char *page(size_t number)
{
    static char made[PAGE];
    memcpy(made, sample + number * PAGE % sample_bytes, PAGE);
    if (stamps) {
        char stamp[STAMP_BYTES + 1];
        snprintf(stamp, sizeof stamp, "%07zx\n", number & 0xfffffff);
        memcpy(made, stamp, STAMP_BYTES);
    }
    return made;
}

static int write_word(const char *path, const char *word)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int good = write(fd, word, strlen(word)) == (ssize_t)strlen(word);
    close(fd);
    return good;
}

static void join_group(void)
{
    char path[4096];
    if (!strcmp(group, "-"))
        return;
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    check(write_word(path, "0"), path);
}

/* Pages of the region that are not in memory. */
static size_t gone(void)
{
    unsigned char *present = malloc(region_bytes / PAGE);
    check(present && !mincore(region, region_bytes, present), "mincore");
    size_t count = 0;
    for (size_t i = 0; i < region_bytes / PAGE; i++)
        count += !(present[i] & 1);
    free(present);
    return count;
}

/* Pages of the region whose entry says that they are in swap: bit 62 in pagemap. */
static size_t swapped(void)
{
    uint64_t words[512];
    size_t count = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    check(fd >= 0, "pagemap");
    for (size_t at = 0; at < region_bytes; at += sizeof words / 8 * PAGE) {
        off_t offset = (off_t)(((uintptr_t)region + at) / PAGE * 8);
        check(pread(fd, words, sizeof words, offset) == sizeof words, "pagemap");
        for (size_t i = 0; i < sizeof words / 8; i++)
            count += words[i] >> 62 & 1;
    }
    close(fd);
    return count;
}

/* Waits until what went out is written, and has the kernel forget it. */
static size_t settle(size_t wanted)
{
    char path[2][4096], bytes[32];
    snprintf(path[0], sizeof path[0], "%s/memory.force_empty", group);
    snprintf(path[1], sizeof path[1], "%s/memory.reclaim", group);
    snprintf(bytes, sizeof bytes, "%zu", region_bytes);
    size_t count = gone();
    for (int round = 0; count < wanted && round < SETTLE_ROUNDS; round++, count = gone()) {
        usleep(SETTLE_US);
        /* Less than all is EAGAIN or EBUSY, and then there is another round. */
        if (strcmp(group, "-") && !write_word(path[0], "0"))
            write_word(path[1], bytes);
    }
    return count;
}

static void map_region(size_t folio_kib)
{
    char *start = mmap(NULL, region_bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(start != MAP_FAILED, "mmap");
    region = (char *)(((uintptr_t)start + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    int advice = folio_kib > 4 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    /* Without huge pages in the kernel this is refused for base pages, and not needed. */
    check(!madvise(region, region_bytes, advice) || folio_kib <= 4, "MADV_HUGEPAGE");
}

static void once(void)
{
    for (size_t at = 0; at < region_bytes; at += PAGE)
        memcpy(region + at, page(at / PAGE), PAGE);
    double wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    check(!madvise(region, region_bytes, MADV_PAGEOUT), "MADV_PAGEOUT");
    double out_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    double out = clock_ns(CLOCK_MONOTONIC) - wall;
    size_t unmapped = swapped(), left = settle(unmapped - unmapped / 50);
    wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (size_t at = 0; at < region_bytes; at += PAGE)
        (void)((volatile char *)region)[at];
    double in_cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    double in = clock_ns(CLOCK_MONOTONIC) - wall;
    for (size_t at = 0; at < region_bytes; at += PAGE) {
        errno = EIO;
        check(!memcmp(region + at, page(at / PAGE), PAGE), "a page came back with other content");
    }
    printf("%.0f %.0f %.0f %.0f %zu %zu\n", out, out_cpu, in, in_cpu, unmapped, left);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    /* No process would read its output any more, and swap is given back. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    region_bytes = strtoul(argv[2], NULL, 10);
    stamps = atoi(argv[4]);
    group = argv[5];
    join_group();
    read_sample();
    for (int round = atoi(argv[3]); round > 0; round--) {
        map_region(strtoul(argv[1], NULL, 10));
        once();
        check(!munmap(region, region_bytes), "munmap");
    }
    return 0;
}

/* touch: the cost of the first touch of memory, and of freeing it, by folio size.
 *
 * `clear` is the cost of clearing the same bytes from user mode, with the instruction that kernels
 * use where it is one per byte to an emulator; a reporter subtracts it from `touch`.
 */
#include "common.h"

enum { TOUCH, MUNMAP, DONTNEED, PROTECT, MOVE, CLEAR, METRICS };
static const char *const names[METRICS] = {
    "touch", "munmap", "dontneed", "mprotect-ro", "mremap-unaligned", "clear"};

/* Clears touched memory page by page. */
static void clear(char *region, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PAGE) {
#ifdef __x86_64__
        char *to = region + at;
        size_t count = PAGE;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
#else
        memset(region + at, 0, PAGE);
        __asm__ volatile("" : : "r"(region + at) : "memory");
#endif
    }
}

static char *touched(size_t bytes, const char *size)
{
    char *region = map_region(bytes, size);
    touch_pages(region, bytes, 1);
    return region;
}

/* Moves the region to a place that is off by a page, so that no table can be moved whole. */
static uint64_t move(char *region, size_t bytes)
{
    char *to = map_region(bytes + HUGE_BYTES, "asis");
    uint64_t start = now_ns();
    char *moved = mremap(region, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE);
    uint64_t took = now_ns() - start;
    if (moved == MAP_FAILED)
        failed("mremap");
    munmap(to, bytes + HUGE_BYTES);
    return took;
}

static void once(size_t bytes, const char *size, uint64_t *took)
{
    char *region = map_region(bytes, size);
    uint64_t start = now_ns();
    touch_pages(region, bytes, 1);
    took[TOUCH] = now_ns() - start;
    start = now_ns();
    clear(region, bytes);
    took[CLEAR] = now_ns() - start;
    start = now_ns();
    if (munmap(region, bytes))
        failed("munmap");
    took[MUNMAP] = now_ns() - start;

    region = touched(bytes, size);
    start = now_ns();
    if (madvise(region, bytes, MADV_DONTNEED))
        failed("MADV_DONTNEED");
    took[DONTNEED] = now_ns() - start;
    touch_pages(region, bytes, 1);
    start = now_ns();
    if (mprotect(region, bytes, PROT_READ))
        failed("mprotect");
    took[PROTECT] = now_ns() - start;
    munmap(region, bytes);
    took[MOVE] = move(touched(bytes, size), bytes);
}

static void measure(const struct options *o, const char *size)
{
    double values[METRICS][MAX_ROUNDS];
    only_thp(o, size);
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t took[METRICS];
        once(o->bytes, size, took);
        for (int metric = 0; metric < METRICS; metric++)
            values[metric][round] = (double)took[metric] / (double)(o->bytes / PAGE);
    }
    for (int metric = 0; metric < METRICS; metric++)
        figure(size, names[metric], median(values[metric], o->rounds), "ns/page");
}

/* mmap and munmap of 64 KiB that stay untouched. */
static void untouched(size_t rounds)
{
    enum { CALLS = 1000 };
    double values[MAX_ROUNDS];
    for (size_t round = 0; round < rounds; round++) {
        uint64_t start = now_ns();
        for (int call = 0; call < CALLS; call++) {
            void *p = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
            if (p == MAP_FAILED || munmap(p, 64 * KIB))
                failed("mmap or munmap");
        }
        values[round] = (double)(now_ns() - start) / CALLS;
    }
    figure("asis", "mmap-munmap-untouched", median(values, rounds), "ns/call");
}

int main(int argc, char **argv)
{
    program_name = "touch";
    struct options o = options(argc, argv, 64);
    for (size_t i = 0; i < o.size_count; i++)
        measure(&o, o.sizes[i]);
    untouched(o.rounds);
    return 0;
}

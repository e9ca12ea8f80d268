/* callbench: the fixed cost of the calls that change a little: each is made many times in one place,
 * on folios of one page.
 *
 * `fresh` is a process that has mapped little so far; `used` is the same after it has mapped, touched
 * and unmapped a large region. `clear` is as in touch.c: a reporter subtracts it.
 */
#include "common.h"
#include <sys/syscall.h>

enum { CALLS = 1000, PAGES = 64 };

static char *page; /* One in the middle of a touched region. */

static void getppid_once(void)
{
    syscall(SYS_getppid);
}

static void clock_once(void)
{
    now_ns();
}

static char *map_64k(void)
{
    char *p = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        failed("mmap");
    return p;
}

static void map_once(void)
{
    if (munmap(map_64k(), 64 * KIB))
        failed("munmap");
}

static void map_touch_once(void)
{
    char *p = map_64k();
    *(volatile char *)p = 1;
    if (munmap(p, 64 * KIB))
        failed("munmap");
}

/* Makes three areas of one, and one of three. */
static void protect_once(void)
{
    if (mprotect(page, PAGE, PROT_READ) || mprotect(page, PAGE, PROT_READ | PROT_WRITE))
        failed("mprotect");
}

static void discard_once(void)
{
    if (madvise(page, PAGE, MADV_DONTNEED))
        failed("MADV_DONTNEED");
}

static void touch_discard_once(void)
{
    *(volatile char *)page = 1;
    discard_once();
}

static void clear_once(void)
{
#ifdef __x86_64__
    char *to = page;
    size_t count = PAGE;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
#else
    memset(page, 0, PAGE);
    __asm__ volatile("" : : "r"(page) : "memory");
#endif
}

static void measure(const struct options *o, const char *metric, void (*once)(void))
{
    double values[MAX_ROUNDS];
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t start = now_ns();
        for (int call = 0; call < CALLS; call++)
            once();
        values[round] = (double)(now_ns() - start) / CALLS;
    }
    figure("4K", metric, median(values, o->rounds), "ns/call");
}

int main(int argc, char **argv)
{
    program_name = "callbench";
    struct options o = options(argc, argv, 64);
    only_thp(&o, "4K");
    measure(&o, "getppid", getppid_once);
    measure(&o, "clock", clock_once);
    measure(&o, "mmap-munmap-fresh", map_once);
    measure(&o, "mmap-touch-munmap-fresh", map_touch_once);

    char *region = map_region(o.bytes, "4K");
    touch_pages(region, o.bytes, 1);
    if (munmap(region, o.bytes))
        failed("munmap");
    measure(&o, "mmap-munmap-used", map_once);
    measure(&o, "mmap-touch-munmap-used", map_touch_once);

    region = map_region(PAGES * PAGE, "4K");
    touch_pages(region, PAGES * PAGE, 1);
    page = region + PAGES / 2 * PAGE;
    measure(&o, "clear", clear_once);
    measure(&o, "mprotect-pair", protect_once);
    measure(&o, "touch-dontneed", touch_discard_once);
    measure(&o, "dontneed-empty", discard_once);
    return 0;
}

/* Queries about memory by ioctl on files of /proc: one area (Linux 6.11), and runs of pages that
 * are in a state (Linux 6.7; newer than the constants at hand). Where the kernel does not know
 * them, nothing is checked. */
#include "abi.h"

#include <sys/ioctl.h>

struct area_query {
    uint64_t size, flags, address, start, end, rights, page_bytes, offset, inode;
    uint32_t major, minor, name_bytes, build_id_bytes;
    uint64_t name_at, build_id_at;
};

enum { READABLE = 1, WRITABLE = 2, IS_SHARED = 8, OR_NEXT = 16, OF_FILE = 32 };

struct page_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t inverted, all_of, any_of, returned;
};

struct region {
    uint64_t start, end, categories;
};

enum { MUST_PROTECT = 2, IS_FILE = 4, IS_PRESENT = 8, IS_ZERO = 32, IS_HUGE = 64 };

static const unsigned long AREA = _IOWR('f', 17, struct area_query);
static const unsigned long SCAN = _IOWR('f', 16, struct page_scan);

static uint64_t address(const void *p) { return (uintptr_t)p; }

/* Asks for the area at `p`; 0, or an errno. */
static int area_at(int maps, const void *p, uint64_t flags, struct area_query *query)
{
    *query = (struct area_query){.size = sizeof *query, .flags = flags, .address = address(p)};
    return ioctl(maps, AREA, query) ? errno : 0;
}

static const char *areas(void)
{
    int maps = open("/proc/self/maps", O_RDONLY);
    struct area_query q;
    char *p = pages(8), name[64];
    CHECK(maps >= 0 && p != MAP_FAILED);
    if (area_at(maps, p, 0, &q) == ENOTTY)
        return NULL;
    CHECK(munmap(p + 3 * PAGE, PAGE) == 0 && mprotect(p, PAGE, PROT_READ) == 0);
    CHECK(area_at(maps, p + 2 * PAGE, 0, &q) == 0 && q.page_bytes == PAGE);
    CHECK(q.start == address(p + PAGE) && q.end == address(p + 3 * PAGE));
    CHECK(q.rights == (READABLE | WRITABLE) && q.inode == 0 && q.offset == 0);
    CHECK(area_at(maps, p, 0, &q) == 0 && q.rights == READABLE);
    CHECK(area_at(maps, p, WRITABLE, &q) == ENOENT);
    CHECK(area_at(maps, p, WRITABLE | OR_NEXT, &q) == 0 && q.start == address(p + PAGE));
    CHECK(area_at(maps, p + 3 * PAGE, 0, &q) == ENOENT);
    CHECK(area_at(maps, p + 3 * PAGE, OR_NEXT, &q) == 0 && q.start == address(p + 4 * PAGE));
    CHECK(area_at(maps, p, 64, &q) == EINVAL);
    q = (struct area_query){.size = 16, .address = address(p)};
    FAILS(EINVAL, ioctl(maps, AREA, &q));
    CHECK(make_file("shown", "text"));
    int fd = open("shown", O_RDONLY);
    char *file = mmap(p, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    CHECK(file == p && area_at(maps, p, OF_FILE | IS_SHARED, &q) == 0 && q.inode != 0);
    q = (struct area_query){.size = sizeof q, .address = address(p)};
    q.name_at = address(name), q.name_bytes = sizeof name;
    CHECK(ioctl(maps, AREA, &q) == 0 && q.name_bytes == strlen(name) + 1);
    CHECK(strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "/shown"));
    q.name_bytes = 3;
    FAILS(ENAMETOOLONG, ioctl(maps, AREA, &q));
    return NULL;
}

static const char *runs_of_pages(void)
{
    int map = open("/proc/self/pagemap", O_RDONLY);
    char *p = pages(16);
    struct region r[4];
    CHECK(map >= 0 && p != MAP_FAILED);
    CHECK(madvise(p, 16 * PAGE, MADV_NOHUGEPAGE) == 0);
    p[PAGE] = p[2 * PAGE] = p[5 * PAGE] = p[15 * PAGE] = 1;
    struct page_scan scan = {.size = sizeof scan, .start = address(p)};
    scan.end = address(p + 16 * PAGE), scan.vec = address(r), scan.vec_len = 4;
    scan.any_of = IS_PRESENT, scan.returned = IS_PRESENT | IS_FILE | IS_HUGE;
    struct page_scan s = scan;
    int found = ioctl(map, SCAN, &s);
    if (found < 0 && errno == ENOTTY)
        return NULL;
    CHECK(found == 3 && s.walk_end == scan.end);
    CHECK(r[0].start == address(p + PAGE) && r[0].end == address(p + 3 * PAGE));
    CHECK(r[1].start == address(p + 5 * PAGE) && r[1].end == address(p + 6 * PAGE));
    CHECK(r[2].end == address(p + 16 * PAGE) && r[2].categories == IS_PRESENT);
    s = scan, s.vec_len = 1;
    CHECK(ioctl(map, SCAN, &s) == 1 && s.walk_end == address(p + 5 * PAGE));
    s = scan, s.max_pages = 1;
    CHECK(ioctl(map, SCAN, &s) == 1 && r[0].end == address(p + 2 * PAGE));
    CHECK(s.walk_end == address(p + 2 * PAGE));
    s = scan, s.any_of = 0, s.inverted = s.all_of = IS_PRESENT;
    CHECK(ioctl(map, SCAN, &s) == 3 && r[0].start == address(p));
    CHECK(r[2].end == address(p + 15 * PAGE));
    /* Pages that were read and not written hold zeroes: no copy of the program needs them. */
    CHECK(p[6 * PAGE] == 0 && p[7 * PAGE] == 0);
    s = scan, s.any_of = IS_ZERO, s.returned = IS_PRESENT | IS_ZERO;
    CHECK(ioctl(map, SCAN, &s) == 1 && r[0].categories == (IS_PRESENT | IS_ZERO));
    CHECK(r[0].start == address(p + 6 * PAGE) && r[0].end == address(p + 8 * PAGE));
    s = scan, s.flags = MUST_PROTECT;
    FAILS(EPERM, ioctl(map, SCAN, &s));
    s = scan, s.size = 88;
    FAILS(EINVAL, ioctl(map, SCAN, &s));
    s = scan, s.start += 1;
    FAILS(EINVAL, ioctl(map, SCAN, &s));
    s = scan, s.vec = ~0UL;
    FAILS(EFAULT, ioctl(map, SCAN, &s));
    return NULL;
}

const struct abi_case query_cases[] = {
    {"ioctl PROCMAP_QUERY", areas},
    {"ioctl PAGEMAP_SCAN", runs_of_pages},
    {NULL, NULL},
};

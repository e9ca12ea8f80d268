/* mremap: growing, shrinking, moving. */
#include "abi.h"

#include <sys/utsname.h>

static bool is_mapped(char *at)
{
    unsigned char word;
    return mincore(at, PAGE, &word) == 0;
}

/* Pages that hold their index plus one, with unmapped address space behind them. */
static char *numbered(size_t count, size_t behind)
{
    char *p = pages(count + behind);
    if (p == MAP_FAILED)
        return NULL;
    munmap(p + count * PAGE, behind * PAGE);
    for (size_t i = 0; i < count; i++)
        p[i * PAGE] = (char)(i + 1);
    return p;
}

static bool are_numbered(const char *p, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (p[i * PAGE] != (char)(i + 1))
            return false;
    return true;
}

static const char *shrinks(void)
{
    char *p = numbered(8, 0);
    CHECK(p && mremap(p, 8 * PAGE, 3 * PAGE, 0) == p && are_numbered(p, 3));
    CHECK(!is_mapped(p + 3 * PAGE) && !is_mapped(p + 7 * PAGE));
    CHECK(mremap(p, 3 * PAGE, 3 * PAGE, 0) == p);
    return NULL;
}

static const char *grows(void)
{
    char *p = numbered(4, 4);
    CHECK(p && mremap(p, 4 * PAGE, 6 * PAGE, 0) == p && are_numbered(p, 4) && p[5 * PAGE] == 0);
    /* Something stands in the way. */
    CHECK(mmap(p + 6 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
          == p + 6 * PAGE);
    FAILS(ENOMEM, mremap(p, 6 * PAGE, 8 * PAGE, 0));
    char *q = mremap(p, 6 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(q != MAP_FAILED && q != p && are_numbered(q, 4) && q[63 * PAGE] == 0 && !is_mapped(p));
    return NULL;
}

static const char *moves_to_fixed(void)
{
    char *p = numbered(4, 0), *to = pages(8);
    CHECK(p && to != MAP_FAILED && (to[2 * PAGE] = 99));
    char *q = mremap(p, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 2 * PAGE);
    CHECK(q == to + 2 * PAGE && are_numbered(q, 4) && q[4 * PAGE] == 0 && !is_mapped(p));
    /* A part of a mapping moves alone, with other rights around it. */
    CHECK(mremap(q + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK(*to == 2 && !is_mapped(q + PAGE) && q[2 * PAGE] == 3);
    return NULL;
}

static const char *keeps_old(void)
{
    char *p = numbered(4, 0);
    CHECK(p);
    char *q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(q != MAP_FAILED && q != p && are_numbered(q, 4));
    CHECK(is_mapped(p) && p[0] == 0 && p[3 * PAGE] == 0);
    FAILS(EINVAL, mremap(q, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
    FAILS(EINVAL, mremap(q, 4 * PAGE, 4 * PAGE, MREMAP_DONTUNMAP, NULL));
    return NULL;
}

static const char *refuses(void)
{
    char *p = numbered(4, 0);
    CHECK(p);
    FAILS(EINVAL, mremap(p + 1, PAGE, PAGE, 0));
    FAILS(EINVAL, mremap(p, PAGE, 0, 0));
    FAILS(EINVAL, mremap(p, PAGE, PAGE, 64));
    FAILS(EINVAL, mremap(p, PAGE, PAGE, MREMAP_FIXED, p));
    FAILS(EINVAL, mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + 2 * PAGE + 1));
    FAILS(EINVAL, mremap(p, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE));
    FAILS(ENOMEM, mremap(p, PAGE, (size_t)1 << 45, MREMAP_MAYMOVE));
    CHECK(munmap(p, 4 * PAGE) == 0);
    FAILS(EFAULT, mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    FAILS(EFAULT, mremap(p, PAGE, PAGE, 0));
    return NULL;
}

/* A span with a hole cannot grow. */
static const char *spans_hole(void)
{
    char *p = numbered(4, 4);
    CHECK(p && munmap(p + 2 * PAGE, PAGE) == 0);
    FAILS(EFAULT, mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE));
    return NULL;
}

/* Linux before 6.17 moves one area at a time. */
static bool is_old_linux(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    bool known = uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2;
    return known && !strstr(name.release, "quire") && (major < 6 || (major == 6 && minor < 17));
}

/* Several areas move at once, with the holes between them, and shrink at once (Linux 6.17). */
static const char *several_areas(void)
{
    char *p = numbered(6, 0), *to = pages(6);
    CHECK(p && to != MAP_FAILED && !munmap(p + PAGE, PAGE) && !munmap(p + 4 * PAGE, PAGE));
    CHECK(!mprotect(p + 3 * PAGE, PAGE, PROT_READ));
    to[PAGE] = 77;
    if (mremap(p, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
        return errno == EFAULT && is_old_linux() ? NULL : "it does not move";
    CHECK(to[0] == 1 && to[2 * PAGE] == 3 && to[3 * PAGE] == 4 && to[5 * PAGE] == 6);
    CHECK(!is_mapped(p) && !is_mapped(p + 2 * PAGE) && !is_mapped(p + 5 * PAGE));
    /* Where there was a hole, the target stays as it was. */
    CHECK(is_mapped(to + PAGE) && to[PAGE] == 77 && !munmap(to + PAGE, PAGE));
    /* It neither grows, nor moves without a place to move to. */
    CHECK(mremap(to, 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE) == to);
    FAILS(EFAULT, mremap(to, 6 * PAGE, 7 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p));
    CHECK(mremap(to, 6 * PAGE, 3 * PAGE, 0) == to && to[2 * PAGE] == 3);
    CHECK(!is_mapped(to + 3 * PAGE) && !is_mapped(to + 5 * PAGE));
    CHECK(mremap(to, 3 * PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p && p[0] == 1);
    CHECK(!is_mapped(to) && !is_mapped(to + 2 * PAGE));
    return NULL;
}

const struct abi_case remap_cases[] = {
    {"mremap shrinks", shrinks},
    {"mremap grows", grows},
    {"mremap to a fixed place", moves_to_fixed},
    {"mremap with MREMAP_DONTUNMAP", keeps_old},
    {"mremap refuses", refuses},
    {"mremap over a hole", spans_hole},
    {"mremap of several areas", several_areas},
    {NULL, NULL},
};

/* mremap: growing, shrinking, moving. */
#include "abi.h"

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

const struct abi_case remap_cases[] = {
    {"mremap shrinks", shrinks},
    {"mremap grows", grows},
    {"mremap to a fixed place", moves_to_fixed},
    {"mremap with MREMAP_DONTUNMAP", keeps_old},
    {"mremap refuses", refuses},
    {"mremap over a hole", spans_hole},
    {NULL, NULL},
};

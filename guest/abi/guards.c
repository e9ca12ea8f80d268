/* What a process may not do, or asks not to be able to do. */
#include "abi.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const char *thread_pointers(void)
{
#ifdef __x86_64__
    static const unsigned long beyond[] = {0xdead000000000000, ~0ul};
    for (int i = 0; i < 2; i++)
        FAILS(EPERM, syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, beyond[i]));
#endif
    return NULL;
}

/* Whatever makes it larger, the space stays within its limit. */
static const char *space_limit(void)
{
    size_t mib = 1 << 20;
    struct rlimit limit = {64 * mib, RLIM_INFINITY};
    char *p = mmap(NULL, mib, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && setrlimit(RLIMIT_AS, &limit) == 0);
    FAILS(ENOMEM, (long)mmap(NULL, 128 * mib, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    FAILS(ENOMEM, (long)mremap(p, mib, 128 * mib, MREMAP_MAYMOVE));
    char *top = (char *)syscall(SYS_brk, 0);
    CHECK((char *)syscall(SYS_brk, top + 128 * mib) == top);
    CHECK((char *)syscall(SYS_brk, top + mib) == top + mib);
    CHECK(mremap(p, mib, 2 * mib, MREMAP_MAYMOVE) != MAP_FAILED);
    return NULL;
}

const struct abi_case guard_cases[] = {
    {"clone refuses a thread pointer beyond memory", thread_pointers},
    {"RLIMIT_AS", space_limit},
    {NULL, NULL},
};

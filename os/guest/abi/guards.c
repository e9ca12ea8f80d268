/* Restrictions of a process, some of which it asks for itself. */
#include "abi.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const char *thread_pointers(void)
{
#ifdef __x86_64__
    static const unsigned long beyond[] = {0xdead000000000000, ~0ul};
    for (int i = 0; i < 2; i++)
        FAILS(EPERM, syscall(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, beyond[i]));
#endif
    return NULL;
}

/* The address space stays within its limit, whichever call makes it larger. */
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

static const char *exec_gain(void)
{
    enum { REFUSE = 1, NO_INHERIT = 2, SET = 65, GET = 66 };
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, status;
    char *code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, flags, -1, 0);
    char *data = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(code != MAP_FAILED && data != MAP_FAILED && prctl(GET, 0, 0, 0, 0) == 0);
    FAILS(EINVAL, prctl(SET, NO_INHERIT, 0, 0, 0));
    FAILS(EINVAL, prctl(SET, REFUSE, 1, 0, 0));
    CHECK(prctl(SET, REFUSE, 0, 0, 0) == 0 && prctl(GET, 0, 0, 0, 0) == REFUSE);
    FAILS(EPERM, prctl(SET, 0, 0, 0, 0));
    FAILS(EACCES, (long)mmap(NULL, PAGE, PROT_WRITE | PROT_EXEC, flags, -1, 0));
    FAILS(EACCES, mprotect(data, PAGE, PROT_READ | PROT_EXEC));
    FAILS(EACCES, mprotect(code, PAGE, PROT_WRITE | PROT_EXEC));
    CHECK(mprotect(code, PAGE, PROT_READ) == 0);
    FAILS(EACCES, mprotect(code, PAGE, PROT_READ | PROT_EXEC));
    pid_t child = fork();
    if (!child)
        _exit(prctl(GET, 0, 0, 0, 0));
    CHECK(waitpid(child, &status, 0) == child && status == REFUSE << 8);
    return NULL;
}

static const char *splice_memory(void)
{
    enum { NONBLOCK = 2 };
    static char page[4096] = "before";
    char back[8];
    struct iovec out = {page, sizeof page}, in = {back, sizeof back}, far = {(void *)-4096l, 8};
    int ends[2];
    CHECK(pipe(ends) == 0 && vmsplice(ends[1], &out, 1, 0) == sizeof page);
    strcpy(page, "after");
    CHECK(vmsplice(ends[0], &in, 1, 0) == sizeof back);
    FAILS(EINVAL, vmsplice(ends[1], &out, 1, 0x100));
    FAILS(EFAULT, vmsplice(ends[1], &far, 1, 0));
    FAILS(EBADF, vmsplice(99, &out, 1, 0));
    int file = open("f", O_RDWR | O_CREAT, 0600);
    FAILS(EBADF, vmsplice(file, &out, 1, 0));
    /* Bytes without room are left, without a wait for more. */
    static char much[1 << 20];
    struct iovec all = {much, sizeof much};
    long count = vmsplice(ends[1], &all, 1, 0);
    CHECK(count > 0 && count < (long)sizeof much);
    while (vmsplice(ends[1], &out, 1, NONBLOCK) > 0)
        ;
    FAILS(EAGAIN, vmsplice(ends[1], &out, 1, NONBLOCK));
    return NULL;
}

static const char *release_memory(void)
{
    enum { MRELEASE = 448 };
    int status;
    pid_t child = fork();
    if (!child)
        for (;;)
            pause();
    int handle = (int)syscall(434, child, 0);
    CHECK(handle >= 0);
    FAILS(EINVAL, syscall(MRELEASE, handle, 1));
    FAILS(EINVAL, syscall(MRELEASE, handle, 0));
    FAILS(EBADF, syscall(MRELEASE, 99, 0));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(syscall(MRELEASE, handle, 0) == 0 || errno == ESRCH);
    CHECK(waitpid(child, &status, 0) == child);
    FAILS(ESRCH, syscall(MRELEASE, handle, 0));
    return NULL;
}

const struct abi_case guard_cases[] = {
    {"clone refuses a thread pointer beyond memory", thread_pointers},
    {"RLIMIT_AS", space_limit},
    {"prctl PR_SET_MDWE", exec_gain},
    {"vmsplice", splice_memory},
    {"process_mrelease", release_memory},
    {NULL, NULL},
};

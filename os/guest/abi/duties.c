/* Calls that a test suite makes beside those that it tests: locks of processes that die, classes of
 * scheduling, what a child used, hints about files, and policies of memory. */
#include "abi.h"

#include <grp.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

enum { USER = 65534 };

static bool become_user(void)
{
    return setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 &&
           setresuid(USER, USER, USER) == 0;
}

static pthread_mutex_t *lock;

static bool make_lock(void)
{
    pthread_mutexattr_t kind;
    lock = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return lock != MAP_FAILED && !pthread_mutexattr_init(&kind) &&
           !pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) &&
           !pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) &&
           !pthread_mutex_init(lock, &kind);
}

/* The next owner of a lock learns that the last one has ended, whether it waits or comes later. */
static const char *robust_locks(void)
{
    CHECK(make_lock());
    pid_t child = fork();
    if (!child) {
        pthread_mutex_lock(lock);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0) == child && pthread_mutex_lock(lock) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(lock) == 0 && pthread_mutex_unlock(lock) == 0);
    child = fork();
    if (!child) {
        pthread_mutex_lock(lock);
        sleep_ms(100);
        raise(SIGKILL);
    }
    while (pthread_mutex_trylock(lock) == 0) {
        pthread_mutex_unlock(lock);
        sleep_ms(1);
    }
    CHECK(pthread_mutex_lock(lock) == EOWNERDEAD && pthread_mutex_unlock(lock) == 0);
    CHECK(pthread_mutex_lock(lock) == ENOTRECOVERABLE);
    size_t bytes = 0;
    void *head = NULL;
    CHECK(syscall(SYS_get_robust_list, 0, &head, &bytes) == 0 && head && bytes == 24);
    FAILS(EINVAL, syscall(SYS_set_robust_list, head, 5UL));
    FAILS(ESRCH, syscall(SYS_get_robust_list, 1 << 22, &head, &bytes));
    return NULL;
}

static const char *scheduling(void)
{
    struct sched_param one = {1}, none = {0}, found = {9};
    struct timespec round;
    CHECK(sched_getscheduler(0) == SCHED_OTHER && sched_setscheduler(0, SCHED_FIFO, &one) == 0);
    CHECK(sched_getscheduler(0) == SCHED_FIFO && sched_getparam(0, &found) == 0);
    CHECK(found.sched_priority == 1);
    FAILS(EINVAL, sched_setparam(0, &none));
    FAILS(EINVAL, sched_setscheduler(0, SCHED_OTHER, &one));
    CHECK(sched_setscheduler(0, SCHED_RR, &one) == 0 && sched_rr_get_interval(0, &round) == 0);
    CHECK(round.tv_sec == 0 && round.tv_nsec > 0);
    pid_t child = fork();
    if (!child)
        _exit(sched_getscheduler(0) != SCHED_RR);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(sched_setscheduler(0, SCHED_BATCH, &none) == 0 && sched_getscheduler(0) == SCHED_BATCH);
    FAILS(EINVAL, sched_setscheduler(-1, SCHED_OTHER, &none));
    FAILS(ESRCH, sched_setscheduler(1 << 22, SCHED_OTHER, &none));
    CHECK(become_user());
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    FAILS(EPERM, sched_setscheduler(0, SCHED_FIFO, &one));
    FAILS(EPERM, sched_setscheduler(1, SCHED_OTHER, &none));
    FAILS(EPERM, sched_setaffinity(1, sizeof all, &all));
    return NULL;
}

/* A child's peak, its faults and its time reach its parent. */
static const char *usage_of_children(void)
{
    struct rusage child_usage, sum;
    pid_t child = fork();
    if (!child) {
        char *p = pages(2000);
        for (size_t i = 0; i < 2000; i++)
            p[i * PAGE] = 1;
        _exit(0);
    }
    CHECK(wait4(child, NULL, 0, &child_usage) == child && getrusage(RUSAGE_CHILDREN, &sum) == 0);
    CHECK(child_usage.ru_maxrss >= 8000 && child_usage.ru_maxrss < 40000);
    CHECK(child_usage.ru_minflt > 0 && sum.ru_maxrss >= child_usage.ru_maxrss);
    CHECK(getrusage(RUSAGE_SELF, &sum) == 0 && sum.ru_maxrss > 0 && sum.ru_nvcsw > 0);
    FAILS(EINVAL, getrusage(5, &sum));
    int status;
    FAILS(ESRCH, waitpid(INT32_MIN, &status, 0));
    child = fork();
    if (!child)
        raise(SIGSEGV);
    /* Without room for a core there is none. */
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGSEGV && !WCOREDUMP(status));
    return NULL;
}

static const char *hints_about_files(void)
{
    unsigned long found[5], range[2] = {0, 0};
    int ends[2], fd = open("file", O_RDWR | O_CREAT, 0600), writer = open("file", O_WRONLY);
    CHECK(pipe(ends) == 0 && ftruncate(fd, 8 * PAGE) == 0);
    CHECK(pwrite(fd, "x", 1, 0) == 1 && pwrite(fd, "x", 1, 3 * PAGE) == 1);
    if (syscall(451, fd, range, found, 0) && errno == ENOSYS)
        return NULL;
    CHECK(syscall(451, fd, range, found, 0) == 0 && found[0] >= 2 && found[2] == 0);
    range[0] = 3 * PAGE, range[1] = 1;
    CHECK(syscall(451, fd, range, found, 0) == 0 && found[0] == 1);
    FAILS(EINVAL, syscall(451, fd, range, found, 1));
    FAILS(EBADF, syscall(451, -1, range, found, 0));
    FAILS(EFAULT, syscall(451, fd, 8, found, 0));
    FAILS(EFAULT, syscall(451, fd, range, 8, 0));
    CHECK(readahead(fd, 0, 10) == 0 && sync_file_range(fd, 0, 1, 7) == 0);
    FAILS(EBADF, readahead(writer, 0, 1));
    FAILS(EINVAL, readahead(ends[0], 0, 1));
    FAILS(EINVAL, sync_file_range(fd, 0, 1, 8));
    FAILS(EINVAL, sync_file_range(fd, -1, 1, 0));
    FAILS(ESPIPE, sync_file_range(ends[0], 0, 1, 0));
    FAILS(EBADF, sync_file_range(-1, 0, 1, 0));
    return NULL;
}

/* The policy of pages is theirs, and not that of what is mapped there later. */
static const char *policies_of_pages(void)
{
    unsigned long first = 1;
    int mode = -1;
    char *p = pages(4);
    CHECK(p != MAP_FAILED);
    if (syscall(SYS_mbind, p, 2 * PAGE, 2, &first, 64UL, 0) && errno == ENOSYS)
        return NULL;
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p + PAGE, 2UL) == 0 && mode == 2);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p + 2 * PAGE, 2UL) == 0 && mode == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) == 0 && mode == 0);
    CHECK(syscall(SYS_mbind, p, PAGE, 0, NULL, 0UL, 0) == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p, 2UL) == 0 && mode == 0);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p + PAGE, 2UL) == 0 && mode == 2);
    CHECK(mmap(p + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    CHECK(syscall(SYS_get_mempolicy, &mode, NULL, 0UL, p + PAGE, 2UL) == 0 && mode == 0);
    CHECK(syscall(SYS_mbind, p, (size_t)-1, 0, NULL, 0UL, 0) == 0);
    CHECK(munmap(p + PAGE, PAGE) == 0 && syscall(SYS_mbind, p, 4 * PAGE, 0, NULL, 0UL, 0) == 0);
    FAILS(EFAULT, syscall(SYS_mbind, p, 4 * PAGE, 2, &first, 64UL, 0));
    CHECK(syscall(450, p, 0UL, 0UL, 0UL) == 0 || errno == ENOSYS);
    return NULL;
}

static const char *other_errors(void)
{
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigqueue(getpid(), 0, (union sigval){0}) == 0);
    FAILS(ESRCH, sigqueue(1 << 22, 0, (union sigval){0}));
    FAILS(EINVAL, setpgid(-1, 0));
    FAILS(EINVAL, umount2("/", 0x100));
    int handle = syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(handle >= 0 && syscall(SYS_pidfd_send_signal, handle, 0, NULL, 0) == 0);
    FAILS(EINVAL, syscall(SYS_pidfd_send_signal, handle, 99, NULL, 0));
    FAILS(EBADF, syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0));
    FAILS(EPERM, syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    CHECK(!syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    FAILS(EPERM, syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0));
    CHECK(syscall(SYS_membarrier, 512, 0, 0) == MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    /* From a directory that was removed, the way up is still there. */
    CHECK(mkdir("gone", 0700) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    FAILS(ENOENT, open("file", O_CREAT | O_RDWR, 0600));
    CHECK(chdir("..") == 0 && open("file", O_CREAT | O_RDWR, 0600) >= 0);
    CHECK(become_user());
    FAILS(EPERM, sigqueue(1, 0, (union sigval){0}));
    FAILS(EPERM, mount("none", "/", "tmpfs", 0, NULL));
    FAILS(EPERM, umount("/"));
    FAILS(EPERM, syscall(SYS_userfaultfd, 0));
    CHECK(syscall(SYS_userfaultfd, 1) >= 0); /* Only for faults of the program itself. */
    return NULL;
}

/* Parts of a file that were mapped in another order can be mapped in another one again. */
static const char *remaps_pieces(void)
{
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 8; i++)
        CHECK(pwrite(fd, (char[]){i + 1}, 1, i * PAGE) == 1);
    char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED && syscall(SYS_remap_file_pages, p, PAGE, 0, 3UL, 0) == 0 && p[0] == 4);
    CHECK(syscall(SYS_remap_file_pages, p, 2 * PAGE, 0, 5UL, 0) == 0 && p[0] == 6 && p[PAGE] == 7);
    FAILS(EINVAL, syscall(SYS_remap_file_pages, p, 8 * PAGE, 0, 0UL, 0));
    return NULL;
}

const struct abi_case duty_cases[] = {{"duty_robust", robust_locks},
                                      {"duty_schedule", scheduling},
                                      {"duty_usage", usage_of_children},
                                      {"duty_hints", hints_about_files},
                                      {"duty_policies", policies_of_pages},
                                      {"duty_errors", other_errors},
                                      {"duty_remap", remaps_pieces},
                                      {NULL, NULL}};

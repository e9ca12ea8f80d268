/* Memory that another thread watches: userfaultfd. */
#include "abi.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>

enum { PAGES = 40 };

/* A watcher with these features; -1 if there is none. */
static int watcher(int flags, __u64 features)
{
    struct uffdio_api api = {UFFD_API, features, 0};
    int fd = (int)syscall(SYS_userfaultfd, flags | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
        return -1;
    return fd;
}

static int watch(int fd, char *start, size_t count, __u64 mode)
{
    struct uffdio_register all = {{(__u64)start, count * PAGE}, mode, 0};
    return ioctl(fd, UFFDIO_REGISTER, &all);
}

/* Copies `count` pages from `from` to missing ones; what the kernel says it did. */
static long long copy(int fd, char *to, char *from, size_t count)
{
    struct uffdio_copy all = {(__u64)to, (__u64)from, count * PAGE, 0, 0};
    return ioctl(fd, UFFDIO_COPY, &all) ? all.copy : (long long)(count * PAGE);
}

struct toucher {
    char *at;
    bool writes;
    char seen;
};

static void *touch(void *argument)
{
    struct toucher *it = argument;
    if (it->writes)
        *(volatile char *)it->at = 7;
    it->seen = *(volatile char *)it->at;
    return NULL;
}

/* The next message, within a second. */
static bool told(int fd, struct uffd_msg *message)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 1000) == 1 && read(fd, message, sizeof *message) == sizeof *message;
}

static const char *handshake(void)
{
    struct uffd_msg message;
    FAILS(EINVAL, syscall(SYS_userfaultfd, 4));
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    FAILS(EINVAL, watch(fd, pages(1), 1, UFFDIO_REGISTER_MODE_MISSING));
    FAILS(EINVAL, read(fd, &message, sizeof message));
    struct uffdio_api api = {0xab, 0, 0};
    FAILS(EINVAL, ioctl(fd, UFFDIO_API, &api));
    CHECK(api.api == 0 && api.features == 0);
    api = (struct uffdio_api){UFFD_API, 1ull << 60, 0};
    FAILS(EINVAL, ioctl(fd, UFFDIO_API, &api));
    api = (struct uffdio_api){UFFD_API, 0, 0};
    CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
    CHECK(api.features & UFFD_FEATURE_MISSING_SHMEM && api.features & UFFD_FEATURE_THREAD_ID);
    CHECK(api.ioctls >> _UFFDIO_REGISTER & 1 && api.ioctls >> _UFFDIO_UNREGISTER & 1);
    FAILS(EAGAIN, read(fd, &message, sizeof message));
    FAILS(EINVAL, read(fd, &message, sizeof message - 1));
    return NULL;
}

static const char *registering(void)
{
    int fd = watcher(O_NONBLOCK, 0), other = watcher(O_NONBLOCK, 0);
    char *p = pages(PAGES);
    CHECK(fd >= 0 && other >= 0 && p != MAP_FAILED);
    FAILS(EINVAL, watch(fd, p, PAGES, 0));
    FAILS(EINVAL, watch(fd, p, 0, UFFDIO_REGISTER_MODE_MISSING));
    FAILS(EINVAL, watch(fd, p + 1, 1, UFFDIO_REGISTER_MODE_MISSING));
    FAILS(EINVAL, watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_MINOR));
    CHECK(watch(fd, p + 8 * PAGE, 8, UFFDIO_REGISTER_MODE_MISSING) == 0);
    FAILS(EBUSY, watch(other, p, PAGES, UFFDIO_REGISTER_MODE_MISSING));
    CHECK(copy(fd, p, p + 32 * PAGE, 1) == -ENOENT);
    struct uffdio_range all = {(__u64)p, PAGES * PAGE};
    CHECK(ioctl(fd, UFFDIO_UNREGISTER, &all) == 0);
    CHECK(watch(other, p, PAGES, UFFDIO_REGISTER_MODE_MISSING) == 0);
    CHECK(close(other) == 0);
    p[9 * PAGE] = 1; /* None watches any more. */
    return NULL;
}

/* A thread that touches a missing page sleeps until the watcher has copied it. */
static const char *missing(void)
{
    int fd = watcher(O_NONBLOCK, UFFD_FEATURE_THREAD_ID);
    char *p = pages(PAGES), *from = pages(PAGES);
    CHECK(fd >= 0 && watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_MISSING) == 0);
    for (int at = 0; at < PAGES; at++)
        from[at * PAGE] = (char)(at + 1);
    for (int writes = 0; writes < 2; writes++) {
        struct toucher it = {p + (3 + writes) * PAGE, writes, 0};
        struct uffd_msg message;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, touch, &it) == 0 && told(fd, &message));
        CHECK(message.event == UFFD_EVENT_PAGEFAULT);
        CHECK(message.arg.pagefault.address == (__u64)it.at);
        CHECK(message.arg.pagefault.flags == (writes ? UFFD_PAGEFAULT_FLAG_WRITE : 0u));
        CHECK(message.arg.pagefault.feat.ptid != 0);
        CHECK(copy(fd, it.at, from + 5 * PAGE, 1) == PAGE);
        CHECK(pthread_join(thread, NULL) == 0 && it.seen == (writes ? 7 : 6));
    }
    CHECK(copy(fd, p + 3 * PAGE, from, 1) == -EEXIST);
    CHECK(copy(fd, p, from, 8) == 3 * PAGE);
    CHECK(copy(fd, p + 8 * PAGE, from + 8 * PAGE, 32) == 32 * PAGE);
    for (int at = 8; at < PAGES; at++)
        CHECK(p[at * PAGE] == at + 1);
    CHECK(madvise(p, PAGES * PAGE, MADV_DONTNEED) == 0);
    struct uffdio_zeropage zero = {{(__u64)p, PAGES * PAGE}, 0, 0};
    CHECK(ioctl(fd, UFFDIO_ZEROPAGE, &zero) == 0 && zero.zeropage == PAGES * PAGE);
    CHECK(p[9 * PAGE] == 0);
    return NULL;
}

/* Waking without an answer: the thread faults again, and is told again. */
static const char *waking(void)
{
    int fd = watcher(O_NONBLOCK, 0);
    char *p = pages(PAGES), *from = pages(1);
    struct toucher it = {p + PAGE, false, 1};
    struct uffdio_range one = {(__u64)(p + PAGE), PAGE};
    struct uffd_msg message;
    pthread_t thread;
    CHECK(fd >= 0 && watch(fd, p, PAGES, UFFDIO_REGISTER_MODE_MISSING) == 0);
    CHECK(pthread_create(&thread, NULL, touch, &it) == 0 && told(fd, &message));
    CHECK(ioctl(fd, UFFDIO_WAKE, &one) == 0 && told(fd, &message));
    struct uffdio_copy late = {(__u64)(p + PAGE), (__u64)from, PAGE, UFFDIO_COPY_MODE_DONTWAKE, 0};
    CHECK(ioctl(fd, UFFDIO_COPY, &late) == 0 && late.copy == PAGE);
    CHECK(ioctl(fd, UFFDIO_WAKE, &one) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(it.seen == 0);
    return NULL;
}

/* Pages that a file in memory has, and the area does not map. */
static const char *minor(void)
{
    int file = (int)syscall(SYS_memfd_create, "f", 0);
    int fd = watcher(O_NONBLOCK, UFFD_FEATURE_MINOR_SHMEM);
    CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0 && fd >= 0);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *own = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(p != MAP_FAILED && own != MAP_FAILED);
    __u64 mode = UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_MISSING;
    CHECK(watch(fd, p, PAGES, mode) == 0);
    own[2 * PAGE] = 5;
    struct toucher it = {p + 2 * PAGE, false, 0};
    struct uffd_msg message;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, touch, &it) == 0 && told(fd, &message));
    CHECK(message.arg.pagefault.flags == UFFD_PAGEFAULT_FLAG_MINOR);
    struct uffdio_continue on = {{(__u64)it.at, PAGE}, 0, 0};
    CHECK(ioctl(fd, UFFDIO_CONTINUE, &on) == 0 && on.mapped == PAGE);
    CHECK(pthread_join(thread, NULL) == 0 && it.seen == 5);
    on.range.start += 30 * PAGE;
    FAILS(EFAULT, ioctl(fd, UFFDIO_CONTINUE, &on));
    own[3 * PAGE] = 6;
    CHECK(copy(fd, p + 20 * PAGE, own + 3 * PAGE, 1) == PAGE && p[20 * PAGE] == 6);
    CHECK(copy(fd, p + 3 * PAGE, own, 1) == -EEXIST);
    return NULL;
}

static void touch_watched(void)
{
    int fd = watcher(O_NONBLOCK, UFFD_FEATURE_SIGBUS);
    char *p = pages(1);
    if (fd >= 0 && watch(fd, p, 1, UFFDIO_REGISTER_MODE_MISSING) == 0)
        *(volatile char *)p = 1;
}

static const char *by_signal(void)
{
    int status = status_of(touch_watched);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    return NULL;
}

/* A child is not watched, as long as the watcher did not ask for it. */
static const char *child(void)
{
    int fd = watcher(O_NONBLOCK, 0), status;
    char *p = pages(4);
    CHECK(fd >= 0 && watch(fd, p, 4, UFFDIO_REGISTER_MODE_MISSING) == 0);
    pid_t child = fork();
    if (!child)
        _exit(p[PAGE]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return NULL;
}

const struct abi_case watched_cases[] = {
    {"userfaultfd UFFDIO_API", handshake},
    {"userfaultfd UFFDIO_REGISTER", registering},
    {"userfaultfd UFFDIO_COPY and UFFDIO_ZEROPAGE", missing},
    {"userfaultfd UFFDIO_WAKE", waking},
    {"userfaultfd UFFDIO_CONTINUE", minor},
    {"userfaultfd with SIGBUS", by_signal},
    {"userfaultfd and fork", child},
    {NULL, NULL},
};

/* userfaultfd: pages that are moved in, and changes of a watched space that its watcher is told. */
#include "abi.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum { PAGES = 16, WP_SHARED = 1 << 12, MOVES = 1 << 16, HOLES = 2 };
enum { FORK = 1 << 1, REMAP = 1 << 2, REMOVE = 1 << 3, UNMAP = 1 << 6 };

/* As in linux/userfaultfd.h of newer headers. */
struct move {
    __u64 dst, src, len, mode;
    __s64 move;
};
#define MOVE_PAGES _IOWR(UFFDIO, 5, struct move)

/* A watcher with these features, of these pages; -1 if there is none. */
static int watched(__u64 features, char *at, size_t count, __u64 mode)
{
    struct uffdio_api api = {UFFD_API, features, 0};
    struct uffdio_register all = {{(__u64)at, count * PAGE}, mode, 0};
    int fd = (int)syscall(SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
    return fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &all) ? -1 : fd;
}

/* Moves pages: their number, or -errno. */
static int move_to(int fd, char *to, char *from, size_t count, __u64 mode)
{
    struct move all = {(__u64)to, (__u64)from, count * PAGE, mode, 1};
    if (ioctl(fd, MOVE_PAGES, &all) == 0)
        return all.move == (__s64)(count * PAGE) ? (int)count : 0;
    if (errno != EAGAIN)
        return all.move == -errno ? -errno : 0;
    return (int)(all.move / PAGE);
}

static const char *moves(void)
{
    char *from = pages(PAGES), *to = pages(PAGES);
    CHECK(from != MAP_FAILED && to != MAP_FAILED);
    int fd = watched(MOVES, to, PAGES, UFFDIO_REGISTER_MODE_MISSING);
    CHECK(fd >= 0);
    memset(from, 3, 6 * PAGE);
    CHECK(move_to(fd, to + 2 * PAGE, from, 4, 0) == 4);
    CHECK(to[2 * PAGE] == 3 && to[6 * PAGE - 1] == 3 && from[0] == 0 && from[4 * PAGE] == 3);
    CHECK(move_to(fd, to + 5 * PAGE, from + 4 * PAGE, 1, 0) == -EEXIST);
    CHECK(madvise(from, PAGES * PAGE, MADV_DONTNEED) == 0);
    from[PAGE] = 4;
    from[4 * PAGE] = 5;
    CHECK(move_to(fd, to + 7 * PAGE, from, 2, 0) == -ENOENT);
    /* It ends before the first hole, and before the first page that is there. */
    CHECK(move_to(fd, to + 7 * PAGE, from + PAGE, 2, 0) == 1);
    CHECK(move_to(fd, to, from + 3 * PAGE, 4, HOLES) == 2);
    CHECK(to[PAGE] == 5 && to[7 * PAGE] == 4 && from[PAGE] == 0);
    CHECK(move_to(fd, from + 8 * PAGE, to, 1, 0) == -EINVAL);
    CHECK(move_to(fd, to + 8 * PAGE, from, 1, 4) == 0);
    CHECK(mprotect(from, PAGES * PAGE, PROT_READ) == 0);
    CHECK(move_to(fd, to + 8 * PAGE, from, 1, 0) == -EINVAL);
    return NULL;
}

struct change {
    char *at, *to;
    int kind, result;
};

/* The child reads a page that its own watcher fills. */
static int child_of(struct change *change)
{
    pid_t child = fork();
    if (child == 0)
        _exit(change->at[0] == 9 ? 0 : 1);
    int status = -1;
    return child < 0 || waitpid(child, &status, 0) != child ? -1 : status;
}

static void *make(void *argument)
{
    struct change *change = argument;
    size_t bytes = 4 * PAGE;
    switch (change->kind) {
    case FORK: change->result = child_of(change); break;
    case REMAP:
        change->to = mremap(change->at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, change->to);
        change->result = change->to == MAP_FAILED;
        break;
    case REMOVE: change->result = madvise(change->at, bytes, MADV_DONTNEED); break;
    default: change->result = munmap(change->at, bytes);
    }
    return NULL;
}

static bool hears(int fd, struct uffd_msg *message)
{
    struct pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 1000) == 1 && read(fd, message, sizeof *message) == sizeof *message;
}

static int fill(int fd, char *at, char *from)
{
    struct uffdio_copy copy = {(__u64)at, (__u64)from, PAGE, 0, 1};
    int failed = ioctl(fd, UFFDIO_COPY, &copy);
    return failed ? -errno : copy.copy == (__s64)PAGE ? 0 : 1;
}

static const char *changes(void)
{
    char *p = pages(PAGES), *new = pages(4), *nine = pages(1);
    CHECK(p != MAP_FAILED && new != MAP_FAILED && nine != MAP_FAILED);
    memset(nine, 9, PAGE);
    int fd = watched(FORK | REMAP | REMOVE | UNMAP, p, PAGES, UFFDIO_REGISTER_MODE_MISSING);
    CHECK(fd >= 0);
    struct uffd_msg message;
    struct change change = {p, new, REMOVE, -1};
    pthread_t thread;
    CHECK(fill(fd, p, nine) == 0 && p[0] == 9);
    CHECK(pthread_create(&thread, NULL, make, &change) == 0);
    struct pollfd one = {fd, POLLIN, 0};
    CHECK(poll(&one, 1, 1000) == 1);
    /* Until the watcher knows, nothing is gone, and no answer is taken. */
    CHECK(p[0] == 9 && fill(fd, p + PAGE, nine) == -EAGAIN);
    CHECK(hears(fd, &message) && message.event == UFFD_EVENT_REMOVE);
    CHECK(message.arg.remove.start == (__u64)p);
    CHECK(message.arg.remove.end == (__u64)(p + 4 * PAGE));
    CHECK(pthread_join(thread, NULL) == 0 && change.result == 0);
    CHECK(fill(fd, p + PAGE, nine) == 0);

    change.kind = FORK;
    CHECK(pthread_create(&thread, NULL, make, &change) == 0);
    CHECK(hears(fd, &message) && message.event == UFFD_EVENT_FORK);
    int child = (int)message.arg.fork.ufd;
    CHECK(child > 0 && hears(child, &message) && message.event == UFFD_EVENT_PAGEFAULT);
    CHECK(message.arg.pagefault.address == (__u64)p && fill(child, p, nine) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && change.result == 0 && close(child) == 0);

    change.kind = REMAP;
    CHECK(pthread_create(&thread, NULL, make, &change) == 0);
    CHECK(hears(fd, &message) && message.event == UFFD_EVENT_REMAP);
    CHECK(message.arg.remap.from == (__u64)p && message.arg.remap.to == (__u64)new);
    CHECK(message.arg.remap.len == 4 * PAGE);
    /* The old place is told as well. */
    CHECK(hears(fd, &message) && message.event == UFFD_EVENT_UNMAP);
    CHECK(message.arg.remove.start == (__u64)p);
    CHECK(pthread_join(thread, NULL) == 0 && change.result == 0 && new[PAGE] == 9);
    CHECK(fill(fd, new, nine) == 0 && new[0] == 9);

    change = (struct change){new, NULL, UNMAP, -1};
    CHECK(pthread_create(&thread, NULL, make, &change) == 0);
    CHECK(hears(fd, &message) && message.event == UFFD_EVENT_UNMAP);
    CHECK(message.arg.remove.start == (__u64)new);
    CHECK(pthread_join(thread, NULL) == 0 && change.result == 0);
    /* A watcher that ends lets them go. */
    change = (struct change){p + 8 * PAGE, NULL, UNMAP, -1};
    CHECK(pthread_create(&thread, NULL, make, &change) == 0 && poll(&one, 1, 1000) == 1);
    CHECK(close(fd) == 0 && pthread_join(thread, NULL) == 0 && change.result == 0);
    return NULL;
}

/* Missing pages of shared memory get their content and their protection at once. */
static const char *protected_copies(void)
{
    int file = (int)syscall(SYS_memfd_create, "f", 0);
    CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
    char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *nine = pages(1);
    CHECK(p != MAP_FAILED && nine != MAP_FAILED);
    memset(nine, 9, PAGE);
    __u64 mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
    int fd = watched(UFFD_FEATURE_PAGEFAULT_FLAG_WP | WP_SHARED | FORK, p, PAGES, mode);
    CHECK(fd >= 0);
    for (int at = 0; at < PAGES; at += 5) {
        struct uffdio_copy copy = {(__u64)(p + at * PAGE), (__u64)nine, PAGE, 2, 1};
        CHECK(ioctl(fd, UFFDIO_COPY, &copy) == 0 && p[at * PAGE] == 9);
    }
    return NULL;
}

const struct abi_case changed_cases[] = {
    {"userfaultfd UFFDIO_MOVE", moves},
    {"userfaultfd and changes of the space", changes},
    {"userfaultfd UFFDIO_COPY_MODE_WP in shared memory", protected_copies},
    {NULL, NULL},
};

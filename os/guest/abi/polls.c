/* Waiting for descriptors: poll, ppoll, select. */
#include "abi.h"

#include <poll.h>
#include <sys/select.h>

static const char *poll_states(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct pollfd p[3] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {-1, POLLIN, 9}};
    CHECK(poll(p, 3, 0) == 1 && p[0].revents == 0 && p[1].revents == POLLOUT && !p[2].revents);
    CHECK(write(ends[1], "x", 1) == 1 && poll(p, 3, -1) == 2 && p[0].revents == POLLIN);
    struct pollfd closed = {999, POLLIN, 0};
    CHECK(poll(&closed, 1, 0) == 1 && closed.revents == POLLNVAL);
    CHECK(close(ends[1]) == 0 && poll(p, 1, 0) == 1 && (p[0].revents & POLLHUP));
    return NULL;
}

static const char *poll_of_a_file(void)
{
    CHECK(make_file("f", ""));
    struct pollfd p = {open("f", O_RDWR), POLLIN | POLLOUT, 0};
    CHECK(poll(&p, 1, -1) == 1 && p.revents == (POLLIN | POLLOUT));
    return NULL;
}

static const char *poll_timeout(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct pollfd p = {ends[0], POLLIN, 0};
    uint64_t start = now_ns();
    CHECK(poll(&p, 1, 20) == 0 && now_ns() - start >= 20000000);
    struct timespec wait = {0, 20000000}, wrong = {0, 1000000000};
    start = now_ns();
    CHECK(ppoll(&p, 1, &wait, NULL) == 0 && now_ns() - start >= 20000000);
    FAILS(EINVAL, ppoll(&p, 1, &wrong, NULL));
    return NULL;
}

/* Another process's action wakes a waiter. */
static const char *poll_wakes(void)
{
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (!child) {
        sleep_ms(20);
        _exit(write(ends[1], "x", 1) != 1);
    }
    struct pollfd p = {ends[0], POLLIN, 0};
    CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLIN);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return NULL;
}

static const char *selects(void)
{
    int ends[2];
    fd_set in, out;
    struct timeval none = {0, 0}, some = {0, 20000};
    CHECK(pipe(ends) == 0);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(ends[0], &in);
    FD_SET(ends[1], &out);
    CHECK(select(ends[1] + 1, &in, &out, NULL, &none) == 1);
    CHECK(!FD_ISSET(ends[0], &in) && FD_ISSET(ends[1], &out));
    FD_SET(ends[0], &in);
    uint64_t start = now_ns();
    CHECK(select(ends[0] + 1, &in, NULL, NULL, &some) == 0 && now_ns() - start >= 20000000);
    FD_SET(ends[0], &in);
    CHECK(write(ends[1], "x", 1) == 1 && select(ends[0] + 1, &in, NULL, NULL, NULL) == 1);
    /* Descriptors beyond what a process ever used may be overlooked; this one was open. */
    FD_ZERO(&in);
    FD_SET(ends[0], &in);
    none = (struct timeval){0, 0};
    CHECK(close(ends[0]) == 0);
    FAILS(EBADF, select(ends[0] + 1, &in, NULL, NULL, &none));
    FAILS(EINVAL, select(-1, &in, NULL, NULL, &none));
    return NULL;
}

static const char *poll_of_a_process(void)
{
    int ends[2], status;
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (!child)
        _exit(close(ends[1]) || read(ends[0], &byte, 1) != 1);
    struct pollfd p = {(int)syscall(SYS_pidfd_open, child, 0), POLLIN, 0};
    CHECK(p.fd >= 0 && poll(&p, 1, 20) == 0);
    CHECK(write(ends[1], "x", 1) == 1 && poll(&p, 1, -1) == 1 && p.revents == POLLIN);
    CHECK(waitpid(child, &status, WNOHANG) == child && status == 0);
    CHECK(poll(&p, 1, 0) == 1 && (p.revents & POLLIN));
    return NULL;
}

const struct abi_case poll_cases[] = {
    {"poll", poll_states},
    {"poll of a file", poll_of_a_file},
    {"poll with a timeout", poll_timeout},
    {"poll that is woken", poll_wakes},
    {"poll of a process", poll_of_a_process},
    {"select", selects},
    {NULL, NULL},
};

/* Timers, and descriptors of events: alarm, setitimer, timer_create, timerfd, eventfd, epoll,
 * signalfd. */
#include "abi.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static volatile sig_atomic_t rings;

static void ring(int number)
{
    (void)number;
    rings++;
}

static const char *alarms(void)
{
    signal(SIGALRM, ring);
    CHECK(alarm(100) == 0 && alarm(0) == 100 && alarm(0) == 0);
    struct itimerval soon = {{0, 20000}, {0, 20000}}, none = {{0, 0}, {0, 0}}, now;
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0 && getitimer(ITIMER_REAL, &now) == 0);
    CHECK(now.it_interval.tv_usec == 20000 && now.it_value.tv_usec > 0);
    while (rings < 3)
        pause();
    CHECK(setitimer(ITIMER_REAL, &none, &now) == 0 && now.it_interval.tv_usec == 20000);
    FAILS(EINVAL, setitimer(7, &none, NULL));
    soon.it_value.tv_usec = 1000000;
    FAILS(EINVAL, setitimer(ITIMER_REAL, &soon, NULL));
    rings = 0;
    signal(SIGPROF, ring);
    struct itimerval spent = {{0, 0}, {0, 30000}};
    CHECK(setitimer(ITIMER_PROF, &spent, NULL) == 0);
    while (!rings)
        continue;
    return NULL;
}

static const char *posix_timers(void)
{
    struct sigaction action = {.sa_handler = ring};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    struct itimerspec once = {{0, 0}, {0, 10000000}}, now;
    CHECK(timer_settime(timer, 0, &once, NULL) == 0);
    while (!rings)
        pause();
    CHECK(timer_gettime(timer, &now) == 0 && now.it_value.tv_nsec == 0);
    CHECK(timer_getoverrun(timer) == 0 && timer_delete(timer) == 0);
    event.sigev_signo = 99;
    FAILS(EINVAL, timer_create(CLOCK_MONOTONIC, &event, &timer));
    FAILS(EINVAL, timer_create(77, NULL, &timer));
    return NULL;
}

static const char *timer_files(void)
{
    uint64_t times;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec soon = {{0, 5000000}, {0, 5000000}};
    CHECK(fd >= 0);
    FAILS(EAGAIN, read(fd, &times, 8));
    CHECK(timerfd_settime(fd, 0, &soon, NULL) == 0);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1 && p.revents == POLLIN);
    CHECK(read(fd, &times, 8) == 8 && times >= 1);
    FAILS(EINVAL, read(fd, &times, 7));
    FAILS(EINVAL, timerfd_settime(fd, 64, &soon, NULL));
    FAILS(EINVAL, timerfd_create(77, 0));
    int other = dup(1);
    FAILS(EINVAL, timerfd_gettime(other, &soon));
    return NULL;
}

static const char *event_files(void)
{
    uint64_t n = 0;
    int fd = eventfd(3, EFD_NONBLOCK), one = eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE);
    CHECK(fd >= 0 && one >= 0 && read(fd, &n, 8) == 8 && n == 3);
    FAILS(EAGAIN, read(fd, &n, 8));
    n = UINT64_MAX - 1;
    CHECK(write(fd, &n, 8) == 8);
    n = 1;
    FAILS(EAGAIN, write(fd, &n, 8));
    n = UINT64_MAX;
    FAILS(EINVAL, write(one, &n, 8));
    FAILS(EINVAL, write(one, &n, 4));
    CHECK(read(one, &n, 8) == 8 && n == 1 && read(one, &n, 8) == 8 && n == 1);
    FAILS(EAGAIN, read(one, &n, 8));
    FAILS(EINVAL, eventfd(0, 64));
    return NULL;
}

static const char *sets_of_files(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC), p[2];
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 77}, found[4];
    CHECK(set >= 0 && pipe(p) == 0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, p[0], &wish) == 0);
    FAILS(EEXIST, epoll_ctl(set, EPOLL_CTL_ADD, p[0], &wish));
    FAILS(ENOENT, epoll_ctl(set, EPOLL_CTL_DEL, p[1], &wish));
    FAILS(EINVAL, epoll_ctl(set, EPOLL_CTL_ADD, set, &wish));
    FAILS(EBADF, epoll_ctl(set, EPOLL_CTL_ADD, 999, &wish));
    CHECK(make_file("plain", "text"));
    FAILS(EPERM, epoll_ctl(set, EPOLL_CTL_ADD, open("plain", O_RDONLY), &wish));
    CHECK(epoll_wait(set, found, 4, 0) == 0 && epoll_wait(set, found, 4, 10) == 0);
    FAILS(EINVAL, epoll_wait(set, found, 0, 0));
    CHECK(write(p[1], "ab", 2) == 2);
    for (int i = 0; i < 2; i++)
        CHECK(epoll_wait(set, found, 4, -1) == 1 && found[0].data.u64 == 77);
    CHECK(found[0].events == EPOLLIN);
    wish.events = EPOLLIN | EPOLLET;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, p[0], &wish) == 0 && epoll_wait(set, found, 4, 0) == 1);
    CHECK(epoll_wait(set, found, 4, 0) == 0 && write(p[1], "c", 1) == 1);
    CHECK(epoll_wait(set, found, 4, 0) == 1);
    wish.events = EPOLLIN | EPOLLONESHOT;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, p[0], &wish) == 0 && epoll_wait(set, found, 4, 0) == 1);
    CHECK(epoll_wait(set, found, 4, 0) == 0);
    wish.events = EPOLLIN;
    CHECK(epoll_ctl(set, EPOLL_CTL_MOD, p[0], &wish) == 0 && close(p[1]) == 0);
    CHECK(epoll_wait(set, found, 4, 0) == 1 && found[0].events == (EPOLLIN | EPOLLHUP));
    CHECK(close(p[0]) == 0 && epoll_wait(set, found, 4, 0) == 0);
    return NULL;
}

static const char *a_waiting_set_is_woken(void)
{
    int set = epoll_create1(0), fd = eventfd(0, 0);
    struct epoll_event wish = {.events = EPOLLIN}, found;
    uint64_t n = 1;
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &wish) == 0);
    pid_t child = fork();
    if (!child) {
        sleep_ms(20);
        _exit(write(fd, &n, 8) != 8);
    }
    CHECK(epoll_wait(set, &found, 1, 10000) == 1);
    struct pollfd p = {set, POLLIN, 0};
    CHECK(poll(&p, 1, 0) == 1);
    CHECK(read(fd, &n, 8) == 8 && poll(&p, 1, 0) == 0);
    return waitpid(child, NULL, 0) == child ? NULL : "no child";
}

static const char *signal_files(void)
{
    sigset_t set;
    struct signalfd_siginfo info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    struct pollfd p = {fd, POLLIN, 0};
    CHECK(fd >= 0 && poll(&p, 1, 0) == 0);
    FAILS(EAGAIN, read(fd, &info, sizeof info));
    CHECK(kill(getpid(), SIGUSR1) == 0 && poll(&p, 1, 1000) == 1);
    CHECK(read(fd, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
    CHECK(info.ssi_pid == (uint32_t)getpid());
    FAILS(EINVAL, read(fd, &info, 16));
    return NULL;
}

const struct abi_case event_cases[] = {
    {"event_alarms", alarms},
    {"event_posix_timers", posix_timers},
    {"event_timer_files", timer_files},
    {"event_counters", event_files},
    {"event_sets", sets_of_files},
    {"event_woken", a_waiting_set_is_woken},
    {"event_signal_files", signal_files},
    {NULL, NULL}};

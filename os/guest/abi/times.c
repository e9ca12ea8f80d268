/* Clocks and sleeping. */
#include "abi.h"

#include <sys/time.h>

static const char *clocks(void)
{
    struct timespec a, b;
    struct timeval t;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &a) == 0 && clock_gettime(CLOCK_MONOTONIC, &b) == 0);
    CHECK(b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
    CHECK(a.tv_nsec >= 0 && a.tv_nsec < 1000000000);
    CHECK(clock_gettime(CLOCK_REALTIME, &a) == 0 && a.tv_sec > 1500000000);
    CHECK(gettimeofday(&t, NULL) == 0 && t.tv_sec - a.tv_sec < 5 && t.tv_usec < 1000000);
    CHECK(syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &a) == 0);
    CHECK(syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &a) == 0);
    CHECK(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &a) == 0);
    FAILS(EINVAL, syscall(SYS_clock_gettime, 9999, &a));
    CHECK(clock_getres(CLOCK_MONOTONIC, &a) == 0 && a.tv_sec == 0 && a.tv_nsec > 0);
    return NULL;
}

static const char *sleeps(void)
{
    struct timespec short_time = {0, 20000000}, wrong = {0, 1000000000}, negative = {-1, 0};
    uint64_t start = now_ns();
    CHECK(nanosleep(&short_time, NULL) == 0 && now_ns() - start >= 20000000);
    FAILS(EINVAL, nanosleep(&wrong, NULL));
    FAILS(EINVAL, nanosleep(&negative, NULL));
    start = now_ns();
    CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &short_time, NULL) == 0);
    CHECK(now_ns() - start >= 20000000);
    return NULL;
}

static const char *sleeps_until(void)
{
    struct timespec when;
    uint64_t start = now_ns();
    CHECK(clock_gettime(CLOCK_MONOTONIC, &when) == 0);
    when.tv_nsec += 20000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == 0);
    CHECK(now_ns() - start >= 20000000);
    /* Long ago: soon after boot there is no whole second to go back. */
    when.tv_sec = 0;
    when.tv_nsec = 1;
    CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == 0);
    FAILS(EINVAL, syscall(SYS_clock_nanosleep, 9999, 0, &when, NULL));
    return NULL;
}

const struct abi_case time_cases[] = {
    {"clock_gettime", clocks},
    {"nanosleep", sleeps},
    {"clock_nanosleep until", sleeps_until},
    {NULL, NULL},
};

/* Clocks and sleeping. */
#include "abi.h"

#include <sys/mman.h>
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

/* Sets both times of a file to a moment long ago, and tells whether it could. */
static bool age(int fd)
{
    struct timespec then[2] = {{1000, 0}, {1000, 0}};
    return futimens(fd, then) == 0;
}

static bool is_old(int fd, bool access)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (access ? st.st_atime : st.st_mtime) == 1000;
}

/* A read, and a mapping, set the time of access; a write, and a cut, that of the change. */
static const char *times_of_a_file(void)
{
    char byte;
    CHECK(make_file("file", "text"));
    int fd = open("file", O_RDWR), quiet = open("file", O_RDONLY | O_NOATIME);
    CHECK(fd >= 0 && age(fd) && is_old(fd, true) && is_old(fd, false));
    CHECK(pread(quiet, &byte, 1, 0) == 1 && is_old(fd, true));
    CHECK(pread(fd, &byte, 1, 0) == 1 && !is_old(fd, true) && is_old(fd, false));
    CHECK(age(fd) && read(fd, &byte, 1) == 1 && !is_old(fd, true));
    CHECK(age(fd));
    char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && map[0] == 't' && !is_old(fd, true) && is_old(fd, false));
    map[0] = 'T';
    CHECK(msync(map, PAGE, MS_SYNC) == 0 && !is_old(fd, false) && age(fd));
    CHECK(pwrite(fd, "x", 1, 0) == 1 && !is_old(fd, false));
    CHECK(age(fd) && ftruncate(fd, 3) == 0 && !is_old(fd, false) && is_old(fd, true));
    CHECK(age(fd) && truncate("file", 3) == 0 && !is_old(fd, false));
    /* A time of access that is later than the last change stays for a day. */
    struct stat first, second;
    CHECK(pread(fd, &byte, 1, 0) == 1 && fstat(fd, &first) == 0);
    sleep_ms(20);
    CHECK(pread(fd, &byte, 1, 0) == 1 && fstat(fd, &second) == 0);
    CHECK(!memcmp(&first.st_atim, &second.st_atim, sizeof first.st_atim));
    return NULL;
}

/* The clocks of a process and of a thread, by number. */
static const char *clocks_of_cpu_time(void)
{
    clockid_t clock;
    struct timespec now;
    CHECK(clock_getcpuclockid(getpid(), &clock) == 0 && clock_gettime(clock, &now) == 0);
    CHECK(clock_getres(clock, &now) == 0 && clock_getcpuclockid(0, &clock) == 0);
    CHECK(clock_getcpuclockid(1 << 22, &clock) == ESRCH);
    FAILS(EINVAL, clock_gettime((clockid_t)(~(1U << 22) << 3 | 2), &now));
    return NULL;
}

const struct abi_case time_cases[] = {
    {"clocks of CPU time", clocks_of_cpu_time},
    {"times of a file", times_of_a_file},
    {"clock_gettime", clocks},
    {"nanosleep", sleeps},
    {"clock_nanosleep until", sleeps_until},
    {NULL, NULL},
};

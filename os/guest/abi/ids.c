/* Identity of the process and the machine, limits, random numbers, calls that are not there. */
#include "abi.h"

#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static const char *identity(void)
{
    CHECK(getpid() > 0 && syscall(SYS_gettid) == getpid() && getppid() > 0);
    CHECK(getuid() == geteuid() && getgid() == getegid());
    CHECK(getpgid(0) == getpgrp() && getsid(0) >= 0); /* 0: outside the PID namespace */
    CHECK(setpgid(0, 0) == 0 && getpgrp() == getpid());
    FAILS(ESRCH, getpgid(1 << 22));
    FAILS(EPERM, setsid());
    return NULL;
}

static const char *machine_name(void)
{
    struct utsname name;
    CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux"));
    CHECK(name.release[0] && name.version[0]);
#ifdef __x86_64__
    CHECK(!strcmp(name.machine, "x86_64"));
#elif defined(__riscv)
    CHECK(!strcmp(name.machine, "riscv64"));
#else
    CHECK(!strcmp(name.machine, "aarch64"));
#endif
    return NULL;
}

static const char *random_bytes(void)
{
    unsigned char a[32] = {0}, b[32] = {0};
    CHECK(getrandom(a, 32, 0) == 32 && getrandom(b, 32, GRND_NONBLOCK) == 32);
    CHECK(memcmp(a, b, 32) && getrandom(a, 0, 0) == 0);
    FAILS(EINVAL, getrandom(a, 1, 0x100));
    return NULL;
}

static const char *limits(void)
{
    struct rlimit a, b;
    CHECK(getrlimit(RLIMIT_STACK, &a) == 0 && a.rlim_cur > 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &a) == 0 && a.rlim_cur >= 64 && a.rlim_cur <= a.rlim_max);
    b = a;
    b.rlim_cur = 40;
    CHECK(setrlimit(RLIMIT_NOFILE, &b) == 0 && prlimit(0, RLIMIT_NOFILE, NULL, &b) == 0);
    CHECK(b.rlim_cur == 40 && b.rlim_max == a.rlim_max);
    int last = -1;
    for (int fd; (fd = dup(1)) >= 0;)
        last = fd;
    CHECK(last == 39);
    FAILS(EMFILE, dup(1));
    b.rlim_cur = b.rlim_max + 1;
    FAILS(EINVAL, setrlimit(RLIMIT_NOFILE, &b));
    FAILS(EINVAL, getrlimit(99, &a));
    FAILS(ESRCH, prlimit(1 << 22, RLIMIT_NOFILE, NULL, &a));
    return NULL;
}

static const char *memory_of_machine(void)
{
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0 && info.mem_unit > 0 && info.totalram > 0);
    CHECK(info.freeram <= info.totalram && info.procs > 0 && info.uptime >= 0);
    /* Memory that is not there does not count, although addresses go on behind it. */
    unsigned long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    CHECK(file && fscanf(file, "MemTotal: %lu", &kib) == 1 && fclose(file) == 0);
    CHECK(kib == info.totalram / 1024 * info.mem_unit);
    return NULL;
}

static const char *processors(void)
{
    cpu_set_t set;
    CHECK(sched_yield() == 0 && sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0);
    FAILS(EINVAL, syscall(SYS_sched_getaffinity, 0, 1, &set));
    FAILS(ESRCH, syscall(SYS_sched_getaffinity, 1 << 22, sizeof set, &set));
    unsigned cpu = 999;
    CHECK(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 && cpu < 999);
    return NULL;
}

/* A thread runs where it may, at once; children and threads inherit that. */
static const char *chosen_processor(void)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0 && sched_getcpu() == cpu);
        pid_t child = fork();
        if (child == 0)
            _exit(sched_getcpu() == cpu && sched_getaffinity(0, sizeof one, &one) == 0
                          && CPU_COUNT(&one) == 1 && CPU_ISSET(cpu, &one)
                      ? 0 : 1);
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CPU_ZERO(&one);
    FAILS(EINVAL, sched_setaffinity(0, sizeof one, &one));
    CPU_SET(0, &one);
    FAILS(ESRCH, sched_setaffinity(1 << 22, sizeof one, &one));
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    return NULL;
}

static const char *unknown_call(void)
{
    FAILS(ENOSYS, syscall(5000));
    FAILS(ENOSYS, syscall(0x7fffffff));
    return NULL;
}

static const char *usage(void)
{
    struct rusage u;
    CHECK(getrusage(RUSAGE_SELF, &u) == 0 && u.ru_utime.tv_sec >= 0);
    FAILS(EINVAL, getrusage(99, &u));
    return NULL;
}

const struct abi_case id_cases[] = {
    {"identity", identity},
    {"uname", machine_name},
    {"getrandom", random_bytes},
    {"limits", limits},
    {"sysinfo", memory_of_machine},
    {"sched_getaffinity", processors},
    {"sched_setaffinity", chosen_processor},
    {"unknown system call", unknown_call},
    {"getrusage", usage},
    {NULL, NULL},
};

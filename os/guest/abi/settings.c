/* The settings under /proc/sys, and the promises of memory that they bound. The effects of those
 * that bear on the whole machine are tried on Quire's kernel only. */
#include "abi.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/utsname.h>

enum { USER = 65534, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static bool is_own_machine(void)
{
    struct utsname name;
    return uname(&name) == 0 && strstr(name.release, "quire");
}

/* Reads a setting as text; the count of its bytes, or -1. */
static ssize_t get(const char *name, char *text, size_t room)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, room - 1);
    text[length > 0 ? length : 0] = 0;
    if (fd >= 0)
        close(fd);
    return length;
}

/* Writes a setting; -1 and an errno if that fails. */
static int set(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/%s", name);
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -1;
    int done = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1, why_not = errno;
    close(fd);
    errno = why_not;
    return done;
}

/* A line of /proc/meminfo, in bytes. */
static size_t meminfo(const char *name)
{
    static char text[8192];
    int fd = open("/proc/meminfo", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    char *line = strstr(text, name);
    return line ? (size_t)atol(line + strlen(name)) << 10 : 0;
}

static const char *saved_and_restored(void)
{
    static const char *const names[] = {
        "vm/overcommit_memory", "vm/overcommit_ratio", "vm/max_map_count", "vm/min_free_kbytes",
        "vm/panic_on_oom", "vm/swappiness", "vm/dirty_ratio", "vm/page-cluster",
        "vm/oom_kill_allocating_task", "vm/mmap_min_addr", "kernel/pid_max", "kernel/threads-max",
        "kernel/shmmax", "kernel/shmall", "kernel/shmmni", "kernel/shm_rmid_forced",
        "kernel/sched_rt_runtime_us", "kernel/randomize_va_space", "fs/file-max", "fs/nr_open",
        "fs/pipe-max-size", NULL};
    char text[64];
    for (const char *const *name = names; *name; name++)
        CHECK(get(*name, text, sizeof text) > 0 && set(*name, text) == 0);
    FAILS(EINVAL, set("vm/overcommit_memory", "3"));
    FAILS(EINVAL, set("vm/overcommit_memory", "x"));
    FAILS(EINVAL, set("vm/max_map_count", "-1"));
    FAILS(EINVAL, set("vm/drop_caches", "0"));
    CHECK(get("kernel/random/uuid", text, sizeof text) == 37 && text[14] == '4');
    CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0);
    for (const char *const *name = names; *name; name++)
        FAILS(EACCES, set(*name, "1"));
    FAILS(EACCES, set("vm/drop_caches", "1"));
    CHECK(get("vm/max_map_count", text, sizeof text) > 0);
    return NULL;
}

static void *map(size_t bytes, int prot, int flags)
{
    return mmap(NULL, bytes, prot, flags, -1, 0);
}

/* A mapping that is larger than all memory is refused, unless it promises nothing. */
static const char *promises(void)
{
    char text[16];
    size_t all = meminfo("MemTotal:") + meminfo("SwapTotal:");
    CHECK(all > 0 && meminfo("CommitLimit:") > 0 && meminfo("Committed_AS:") > 0);
    if (get("vm/overcommit_memory", text, sizeof text) > 0 && text[0] != '0')
        return NULL;
    FAILS(ENOMEM, map(2 * all, RW, ANON));
    FAILS(ENOMEM, map(2 * all, RW, MAP_SHARED | MAP_ANONYMOUS));
    CHECK(map(2 * all, RW, ANON | MAP_NORESERVE) != MAP_FAILED);
    CHECK(map(2 * all, PROT_READ, ANON) != MAP_FAILED);
    CHECK(map(all / 4, RW, ANON) != MAP_FAILED);
    if (!is_own_machine())
        return NULL;
    CHECK(set("vm/overcommit_memory", "1") == 0 && map(2 * all, RW, ANON) != MAP_FAILED);
    return NULL;
}

static const char *strict_promises(void)
{
    if (!is_own_machine())
        return NULL;
    CHECK(set("vm/overcommit_memory", "2") == 0);
    size_t most = meminfo("CommitLimit:"), now = meminfo("Committed_AS:");
    char *read_only = map(PAGE, PROT_READ, ANON);
    CHECK(most > now && now > 0 && read_only != MAP_FAILED);
    FAILS(ENOMEM, map(most - now + (1 << 20), RW, ANON));
    FAILS(ENOMEM, map(most - now + (1 << 20), RW, ANON | MAP_NORESERVE));
    CHECK(map(most, PROT_NONE, ANON) != MAP_FAILED);
    CHECK(set("vm/overcommit_kbytes", "1024") == 0);
    FAILS(ENOMEM, map(PAGE << 10, RW, ANON));
    FAILS(ENOMEM, mprotect(read_only, PAGE, RW));
    CHECK(set("vm/overcommit_kbytes", "0") == 0 && mprotect(read_only, PAGE, RW) == 0);
    return NULL;
}

static const char *areas(void)
{
    char old[32], *last = NULL;
    if (!is_own_machine())
        return NULL;
    CHECK(get("vm/max_map_count", old, sizeof old) > 0 && set("vm/max_map_count", "200") == 0);
    int count = 0;
    for (; count < 1000; count++) {
        char *p = map(PAGE, count & 1 ? PROT_READ : RW, ANON);
        if (p == MAP_FAILED)
            break;
        last = p;
    }
    CHECK(count > 100 && count <= 201 && munmap(last, PAGE) == 0);
    CHECK(set("vm/max_map_count", old) == 0);
    char *whole = pages(9);
    CHECK(whole != MAP_FAILED && set("vm/max_map_count", "20") == 0);
    FAILS(ENOMEM, munmap(whole + 4 * PAGE, PAGE));
    FAILS(ENOMEM, mprotect(whole + 4 * PAGE, PAGE, PROT_READ));
    CHECK(munmap(whole, 9 * PAGE) == 0 && set("vm/max_map_count", old) == 0);
    return NULL;
}

/* The limits of segments of System V, and the id that is asked for. */
static const char *segments(void)
{
    char most[32], number[32], text[32];
    struct shm_info about;
    if (!is_own_machine())
        return NULL;
    CHECK(get("kernel/shmmax", most, sizeof most) > 0 && set("kernel/shmmax", "8192") == 0);
    FAILS(EINVAL, shmget(IPC_PRIVATE, 8193, 0600));
    int first = shmget(IPC_PRIVATE, 8192, 0600);
    CHECK(first >= 0 && set("kernel/shmmax", most) == 0);
    CHECK(shmctl(0, SHM_INFO, (void *)&about) >= 0);
    snprintf(text, sizeof text, "%d", about.used_ids + 1);
    CHECK(get("kernel/shmmni", number, sizeof number) > 0 && set("kernel/shmmni", text) == 0);
    int second = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(second >= 0);
    FAILS(ENOSPC, shmget(IPC_PRIVATE, PAGE, 0600));
    CHECK(set("kernel/shmmni", number) == 0 && set("kernel/shm_next_id", "65547") == 0);
    int third = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(third == 65547 && get("kernel/shm_next_id", text, sizeof text) > 0 && text[0] == '-');
    FAILS(EINVAL, shmat(third, (void *)1, SHM_RND | SHM_REMAP));
    CHECK(!shmctl(first, IPC_RMID, NULL) && !shmctl(second, IPC_RMID, NULL));
    CHECK(!shmctl(third, IPC_RMID, NULL));
    return NULL;
}

/* A case of a promise may end early: the setting is the machine's. */
#define RESTORES(name)                                                                            \
    static const char *name##_restores(void)                                                      \
    {                                                                                             \
        const char *said = name();                                                                \
        if (is_own_machine())                                                                     \
            set("vm/overcommit_memory", "0"), set("vm/overcommit_kbytes", "0");                   \
        return said;                                                                              \
    }
RESTORES(promises)
RESTORES(strict_promises)

const struct abi_case setting_cases[] = {{"setting_saved", saved_and_restored},
                                         {"setting_promises", promises_restores},
                                         {"setting_strict", strict_promises_restores},
                                         {"setting_areas", areas},
                                         {"setting_segments", segments},
                                         {NULL, NULL}};

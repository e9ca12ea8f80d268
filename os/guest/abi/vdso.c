/* The vDSO: it is found as C libraries find it, and its times never contradict those of calls. */
#include "abi.h"

#include <elf.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>

#ifdef __aarch64__
#define PREFIX "__kernel_"
#define VERSION "LINUX_2.6.39"
#elif defined __riscv
#define PREFIX "__vdso_"
#define VERSION "LINUX_4.15"
#else
#define PREFIX "__vdso_"
#define VERSION "LINUX_2.6"
#endif

enum { ROUNDS = 20000, THREADS = 3, PLACES = 8 };

typedef int clock_call(clockid_t, struct timespec *);
typedef int day_call(struct timeval *, struct timezone *);

/* The tables of the object. */
struct object {
    const char *base, *strings;
    const Elf64_Sym *symbols;
    const uint16_t *versions;
    const Elf64_Verdef *definitions;
    uint32_t count;
};

/* How many symbols there are, if only the newer kind of hash table is there. */
static uint32_t count_of(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], bloom = hash[2], last = 0;
    const uint32_t *bucket = hash + 4 + 2 * bloom, *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

static bool read_object(struct object *object)
{
    const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
    if (!base || memcmp(base, ELFMAG, SELFMAG))
        return false;
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)base;
    const Elf64_Phdr *segments = (const Elf64_Phdr *)(base + header->e_phoff);
    const Elf64_Dyn *entry = NULL;
    uint64_t from = UINT64_MAX;
    for (int i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && from == UINT64_MAX)
            from = segments[i].p_vaddr - segments[i].p_offset;
        if (segments[i].p_type == PT_DYNAMIC)
            entry = (const Elf64_Dyn *)(base + segments[i].p_offset);
    }
    if (!entry || from == UINT64_MAX)
        return false;
    *object = (struct object){.base = base - from};
    for (; entry->d_tag != DT_NULL; entry++) {
        const char *at = object->base + entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB)
            object->strings = at;
        else if (entry->d_tag == DT_SYMTAB)
            object->symbols = (const Elf64_Sym *)at;
        else if (entry->d_tag == DT_VERSYM)
            object->versions = (const uint16_t *)at;
        else if (entry->d_tag == DT_VERDEF)
            object->definitions = (const Elf64_Verdef *)at;
        else if (entry->d_tag == DT_HASH)
            object->count = ((const uint32_t *)at)[1];
        else if (entry->d_tag == DT_GNU_HASH && !object->count)
            object->count = count_of((const uint32_t *)at);
    }
    return object->strings && object->symbols && object->versions && object->definitions;
}

/* Whether a version with this number has the name that programs ask for. */
static bool is_version(const struct object *object, uint16_t number)
{
    const char *at = (const char *)object->definitions;
    for (;;) {
        const Elf64_Verdef *definition = (const Elf64_Verdef *)at;
        const Elf64_Verdaux *name = (const Elf64_Verdaux *)(at + definition->vd_aux);
        if (definition->vd_ndx == (number & 0x7fff) && !(definition->vd_flags & VER_FLG_BASE))
            return !strcmp(object->strings + name->vda_name, VERSION);
        if (!definition->vd_next)
            return false;
        at += definition->vd_next;
    }
}

/* A function of the object, `moved` bytes from where it was found; NULL if there is none. */
static void *function(const char *name, ptrdiff_t moved)
{
    struct object object;
    if (!read_object(&object))
        return NULL;
    for (uint32_t i = 1; i < object.count; i++) {
        const Elf64_Sym *symbol = &object.symbols[i];
        if (symbol->st_shndx != SHN_UNDEF && !strcmp(object.strings + symbol->st_name, name) &&
            is_version(&object, object.versions[i]))
            return (char *)object.base + symbol->st_value + moved;
    }
    return NULL;
}

static uint64_t ns_of(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec;
}

static uint64_t called_ns(clockid_t clock)
{
    struct timespec time = {0, 0};
    syscall(SYS_clock_gettime, clock, &time);
    return ns_of(&time);
}

static const char *is_found(void)
{
    struct object object;
    CHECK(read_object(&object) && object.count > 1);
    CHECK(function(PREFIX "clock_gettime", 0) && function(PREFIX "gettimeofday", 0));
    CHECK(function(PREFIX "clock_getres", 0) && !function(PREFIX "clock_nonsense", 0));
#ifdef __x86_64__
    CHECK(function(PREFIX "time", 0));
#else
    CHECK(function(PREFIX "rt_sigreturn", 0));
#endif
    return NULL;
}

/* The time of the object lies between those of the calls before and after it. */
static const char *is_between(void)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC,     CLOCK_REALTIME,
                                       CLOCK_BOOTTIME,      CLOCK_MONOTONIC_RAW,
                                       CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_TAI};
    clock_call *get = (clock_call *)function(PREFIX "clock_gettime", 0);
    CHECK(get);
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
        for (int round = 0; round < ROUNDS / 10; round++) {
            struct timespec time = {-1, -1};
            uint64_t before = called_ns(clocks[i]);
            CHECK(get(clocks[i], &time) == 0 && time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
            CHECK(before <= ns_of(&time) && ns_of(&time) <= called_ns(clocks[i]));
        }
    return NULL;
}

static uint64_t latest;
static bool went_back;

/* Each time is at least the latest that any thread has seen before, by call or not. */
static void *watch_clock(void *argument)
{
    clock_call *get = (clock_call *)function(PREFIX "clock_gettime", 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t before = __atomic_load_n(&latest, __ATOMIC_ACQUIRE);
        struct timespec time = {0, 0};
        if ((round + (int)(intptr_t)argument) % 3)
            get(CLOCK_MONOTONIC, &time);
        else
            syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
        uint64_t now = ns_of(&time);
        if (now < before)
            __atomic_store_n(&went_back, true, __ATOMIC_RELAXED);
        while (before < now && !__atomic_compare_exchange_n(&latest, &before, now, true,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            continue;
    }
    return NULL;
}

static const char *never_goes_back(void)
{
    pthread_t threads[THREADS];
    CHECK(function(PREFIX "clock_gettime", 0));
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, watch_clock, (void *)i));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(!went_back && latest > 0);
    return NULL;
}

static const char *time_of_day(void)
{
    day_call *get = (day_call *)function(PREFIX "gettimeofday", 0);
    CHECK(get);
    for (int round = 0; round < ROUNDS / 10; round++) {
        struct timeval time = {-1, -1};
        struct timezone zone = {1, 1};
        uint64_t before = called_ns(CLOCK_REALTIME) / 1000;
        CHECK(get(&time, &zone) == 0 && time.tv_usec >= 0 && time.tv_usec < 1000000);
        uint64_t us = (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
        CHECK(before <= us && us <= called_ns(CLOCK_REALTIME) / 1000);
        CHECK(zone.tz_minuteswest == 0 && zone.tz_dsttime == 0);
    }
    CHECK(get(NULL, NULL) == 0);
#ifdef __x86_64__
    time_t (*seconds)(time_t *) = (time_t (*)(time_t *))function(PREFIX "time", 0), there = 0;
    time_t before = (time_t)(called_ns(CLOCK_REALTIME_COARSE) / 1000000000);
    time_t now = seconds(&there);
    CHECK(before <= now && now == there && now <= seconds(NULL));
    CHECK(now <= (time_t)(called_ns(CLOCK_REALTIME) / 1000000000));
#endif
    return NULL;
}

static long answer(long result)
{
    return result < 0 ? -errno : result;
}

/* All numbers of clocks, good and bad, have the answer of the call. Linux 6.18 knows more of some
 * auxiliary clocks in one way than in the other. */
static const char *all_clocks(void)
{
    clock_call *get = (clock_call *)function(PREFIX "clock_gettime", 0);
    clock_call *resolution = (clock_call *)function(PREFIX "clock_getres", 0);
    struct timespec a, b;
    for (clockid_t clock = -70; clock < 70; clock++) {
        if (clock >= 16 && clock < 24)
            continue;
        CHECK(get(clock, &a) == answer(syscall(SYS_clock_gettime, clock, &a)));
        CHECK(resolution(clock, NULL) == answer(syscall(SYS_clock_getres, clock, NULL)));
        a = b = (struct timespec){7, 7};
        CHECK(resolution(clock, &a) == answer(syscall(SYS_clock_getres, clock, &b)));
        CHECK(ns_of(&a) == ns_of(&b));
    }
    CHECK(get(9999, &a) == -EINVAL && get(INT32_MIN, &a) == -EINVAL);
    CHECK(get(CLOCK_THREAD_CPUTIME_ID, &a) == 0);
    return NULL;
}

/* Functions write as the program does: there is nothing at NULL. */
static void write_nowhere(void)
{
    ((clock_call *)function(PREFIX "clock_gettime", 0))(CLOCK_MONOTONIC, NULL);
}

static void write_object(void)
{
    *(volatile char *)getauxval(AT_SYSINFO_EHDR) = 1;
}

/* The areas of the object and its data, ascending. */
struct place {
    uintptr_t start, end;
    char rights[8], name[24];
};

static size_t places(const char *path, struct place found[PLACES])
{
    char line[512];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file) && count < PLACES) {
        struct place *place = &found[count];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %23s", &place->start, &place->end, place->rights,
                   place->name) == 4 &&
            (!strncmp(place->name, "[vvar", 5) || !strcmp(place->name, "[vdso]")))
            count++;
    }
    if (file)
        fclose(file);
    return count;
}

static const char *is_shown(void)
{
    static const char *const paths[] = {"/proc/self/maps", "/proc/self/smaps"};
    for (int i = 0; i < 2; i++) {
        struct place found[PLACES];
        size_t count = places(paths[i], found);
        CHECK(count >= 2 && !strcmp(found[0].name, "[vvar]"));
        CHECK(!strcmp(found[0].rights, "r--p"));
        struct place *object = &found[count - 1];
        CHECK(!strcmp(object->name, "[vdso]") && !strcmp(object->rights, "r-xp"));
        CHECK(object->start == getauxval(AT_SYSINFO_EHDR));
        FAILS(EACCES, mprotect((void *)found[0].start, PAGE, PROT_READ | PROT_WRITE));
    }
    int status = status_of(write_object);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    status = status_of(write_nowhere);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    return NULL;
}

static void check_child(void)
{
    uint64_t before = called_ns(CLOCK_MONOTONIC), now = now_ns();
    struct place found[PLACES];
    bool good = before <= now && now <= called_ns(CLOCK_MONOTONIC);
    _exit(!good || places("/proc/self/maps", found) < 2);
}

static void check_grandchild(void)
{
    int status = status_of(check_child);
    _exit(!WIFEXITED(status) || WEXITSTATUS(status));
}

static const char *is_inherited(void)
{
    CHECK(status_of(check_child) == 0 && status_of(check_grandchild) == 0);
    CHECK(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
    CHECK(status_of(check_child) == 0);
    return NULL;
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    handled = signal;
}

/* The object works wherever it is moved; where it is not, calls still do. */
static const char *is_moved(void)
{
    struct place found[PLACES];
    size_t count = places("/proc/self/maps", found);
    CHECK(count >= 2);
    uintptr_t start = found[0].start, end = found[count - 1].end;
    char *room = mmap(NULL, end - start, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    ptrdiff_t moved = (ptrdiff_t)((uintptr_t)room - start);
    clock_call *get = (clock_call *)function(PREFIX "clock_gettime", moved);
    signal(SIGUSR1, handle);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = found[i].end - found[i].start;
        CHECK(mremap((void *)found[i].start, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                     (char *)found[i].start + moved) == (char *)found[i].start + moved);
    }
    struct timespec time = {0, 0};
    uint64_t before = called_ns(CLOCK_MONOTONIC);
    CHECK(get(CLOCK_MONOTONIC, &time) == 0);
    CHECK(before <= ns_of(&time) && ns_of(&time) <= called_ns(CLOCK_MONOTONIC));
    CHECK(syscall(SYS_kill, getpid(), SIGUSR1) == 0 && handled == SIGUSR1);
    CHECK(places("/proc/self/maps", found) == count && found[0].start == (uintptr_t)room);
    CHECK(munmap(room, end - start) == 0 && places("/proc/self/maps", found) == 0);
    CHECK(called_ns(CLOCK_MONOTONIC) >= before);
    return NULL;
}

const struct abi_case vdso_cases[] = {
    {"vdso is found", is_found},
    {"vdso is between calls", is_between},
    {"vdso never goes back", never_goes_back},
    {"vdso gettimeofday", time_of_day},
    {"vdso answers for all clocks", all_clocks},
    {"vdso in maps", is_shown},
    {"vdso in children", is_inherited},
    {"vdso is moved", is_moved},
    {NULL, NULL},
};

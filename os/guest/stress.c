/* stress: several processes of several threads each map, write, protect, advise, unmap, move and
 * fork at random for some seconds, and check that every page has its owner's content.
 *
 * Each thread has slots of address space of its own, so it knows the content of each page; the
 * address space, its lock and its tables are shared by all threads of the process. The seed is
 * printed; with one thread it gives the same run again. */
#include "team.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { SLOT_PAGES = 1024, SLOTS = 4, ACTIONS = 9, REMEMBERED = 12 };

static uint64_t deadline_ns;
static atomic_ulong actions_done;

/* A slot: address space of SLOT_PAGES pages, and the stamp that each page must begin with.
 * Stamp 0: the page was never written, or dropped, and reads as zeros. */
struct slot {
    char *region;
    uint32_t stamps[SLOT_PAGES];
    bool is_mapped;
};

struct worker {
    uint64_t random;
    uint32_t next_stamp;
    struct slot slots[SLOTS];
    /* The last actions: number, slot, and first and last page that were drawn. */
    uint16_t actions[REMEMBERED][4];
    unsigned acts;
    /* How many moves of several areas the kernel refused, and how many slots stayed at their new
     * place. */
    unsigned refused, moved;
};

static _Thread_local struct worker *me;

static uint64_t pick(struct worker *w, uint64_t below)
{
    return next_random(&w->random) % below;
}

/* Says what is known about a page that holds another stamp: what each CPU reads there now, its
 * entry of pagemap, how many pages of the slot are wrong, and the last actions. A stamp names its
 * process, its thread, and whether a child wrote it. */
static void report(const struct slot *s, size_t page)
{
    const volatile uint32_t *at = (const volatile uint32_t *)(s->region + page * PAGE);
    size_t wrong = 0, last = page;
    for (int cpu = 0; cpu < 4; cpu++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        if (!sched_setaffinity(0, sizeof set, &set))
            fprintf(stderr, "stress: CPU %d reads %#x\n", cpu, at[0]);
    }
    for (size_t i = 0; i < SLOT_PAGES; i++)
        if (*(const volatile uint32_t *)(s->region + i * PAGE) != s->stamps[i]) {
            wrong++;
            last = i;
        }
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)at / PAGE * sizeof entry));
    fprintf(stderr, "stress: pagemap %#llx; %zu wrong pages up to page %zu; slot %d, next stamp %#x\n",
            (unsigned long long)entry, wrong, last, me ? (int)(s - me->slots) : -1,
            me ? me->next_stamp : 0);
    if (me)
        fprintf(stderr, "stress: %u moves refused, %u slots moved\n", me->refused, me->moved);
    for (unsigned i = me && me->acts > REMEMBERED ? me->acts - REMEMBERED : 0; me && i < me->acts; i++) {
        const uint16_t *act = me->actions[i % REMEMBERED];
        fprintf(stderr, "stress: action %u in slot %u, pages %u to %u\n", act[0], act[1], act[2], act[3]);
    }
}

/* Prints the lines of the process's maps that have pages of a slot. */
static void report_maps(const struct slot *s)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[256];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        bool is_there = sscanf(line, "%lx-%lx", &from, &to) == 2 &&
                        from < (uintptr_t)s->region + SLOT_PAGES * PAGE && to > (uintptr_t)s->region;
        if (is_there)
            fprintf(stderr, "stress: %s", line);
    }
    if (maps)
        fclose(maps);
}

static void check_page(const struct slot *s, size_t page)
{
    const volatile uint32_t *at = (const volatile uint32_t *)(s->region + page * PAGE);
    uint32_t first = at[0], last = at[PAGE / 4 - 1];
    if (first == s->stamps[page] && last == s->stamps[page])
        return;
    report(s, page);
    report_maps(s);
    end(1, "page %zu of a slot at %p holds %#x and %#x, not %#x.", page, (void *)s->region, first,
        last, s->stamps[page]);
}

static void check_slot(const struct slot *s)
{
    for (size_t page = 0; s->is_mapped && page < SLOT_PAGES; page++)
        check_page(s, page);
}

static void map_slot(struct slot *s)
{
    char *at = mmap(s->region, SLOT_PAGES * PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at == MAP_FAILED)
        failed("mmap");
    memset(s->stamps, 0, sizeof s->stamps);
    s->is_mapped = true;
}

static void write_pages(struct worker *w, struct slot *s, size_t from, size_t to)
{
    for (size_t page = from; page < to; page++) {
        uint32_t *at = (uint32_t *)(s->region + page * PAGE);
        check_page(s, page);
        s->stamps[page] = ++w->next_stamp;
        at[0] = at[PAGE / 4 - 1] = s->stamps[page];
    }
}

/* Moves the slot's memory away and back. A kernel may refuse with EFAULT to move several areas at
 * once (Linux before 6.17); then the place that was set aside stays so: to unmap it could hit what
 * another thread has mapped there meanwhile. */
static void move_slot(struct worker *w, struct slot *s)
{
    size_t bytes = SLOT_PAGES * PAGE;
    /* A part with other advice is an area of its own. */
    if (pick(w, 2))
        madvise(s->region, (1 + pick(w, SLOT_PAGES)) * PAGE, MADV_NOHUGEPAGE);
    char *away = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (away == MAP_FAILED)
        failed("mmap");
    if (mremap(s->region, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, away) != away) {
        if (errno != EFAULT)
            failed("mremap");
        w->refused++;
        return;
    }
    /* Another thread may take the place between the two calls, unless it is held. */
    char *held = mmap(s->region, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (held == s->region) {
        if (mremap(away, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, s->region) != s->region)
            failed("mremap back");
    } else {
        s->region = away;
        w->moved++;
    }
}

/* The child checks what it inherited, writes to some of it, and checks again. */
static void fork_and_check(struct worker *w)
{
    pid_t child = fork();
    if (child < 0) {
        if (errno == EAGAIN || errno == ENOMEM)
            return;
        failed("fork");
    }
    if (!child) {
        w->next_stamp |= 1u << 23;
        struct slot *s = &w->slots[pick(w, SLOTS)];
        for (int i = 0; i < SLOTS; i++)
            check_slot(&w->slots[i]);
        if (s->is_mapped)
            write_pages(w, s, 0, 1 + pick(w, SLOT_PAGES));
        check_slot(s);
        _exit(0);
    }
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].is_mapped)
            write_pages(w, &w->slots[i], 0, 1 + pick(w, 64));
    int status;
    if (waitpid(child, &status, 0) != child || status)
        end(1, "a child ended with status %#x.", status);
}

static void protect(struct slot *s, size_t from, size_t to)
{
    char *at = s->region + from * PAGE;
    if (mprotect(at, (to - from) * PAGE, PROT_READ))
        failed("mprotect");
    check_slot(s);
    if (mprotect(at, (to - from) * PAGE, PROT_READ | PROT_WRITE))
        failed("mprotect");
}

static void drop(struct slot *s, size_t from, size_t to)
{
    if (madvise(s->region + from * PAGE, (to - from) * PAGE, MADV_DONTNEED))
        failed("MADV_DONTNEED");
    memset(s->stamps + from, 0, (to - from) * sizeof *s->stamps);
}

/* Unmaps part of a slot and maps it again, as one action. */
static void punch(struct slot *s, size_t from, size_t to)
{
    char *at = s->region + from * PAGE;
    size_t bytes = (to - from) * PAGE;
    char *again = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                       -1, 0);
    if (again != at)
        failed("mmap");
    memset(s->stamps + from, 0, (to - from) * sizeof *s->stamps);
}

static void act(struct worker *w)
{
    struct slot *s = &w->slots[pick(w, SLOTS)];
    if (!s->is_mapped)
        map_slot(s);
    size_t from = pick(w, SLOT_PAGES), to = from + 1 + pick(w, SLOT_PAGES - from);
    uint64_t action = pick(w, ACTIONS);
    uint16_t *noted = w->actions[w->acts++ % REMEMBERED];
    noted[0] = (uint16_t)action;
    noted[1] = (uint16_t)(s - w->slots);
    noted[2] = (uint16_t)from;
    noted[3] = (uint16_t)to;
    switch (action) {
    case 0: case 1: write_pages(w, s, from, to); break;
    case 2: check_slot(s); break;
    case 3: drop(s, from, to); break;
    case 4: protect(s, from, to); break;
    case 5: punch(s, from, to); break;
    case 6: /* A kernel without THP answers EINVAL, and is right. */
        madvise(s->region, SLOT_PAGES * PAGE, pick(w, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        break;
    case 7: move_slot(w, s); break;
    default: fork_and_check(w); break;
    }
    atomic_fetch_add(&actions_done, 1);
}

static void work(int index, int count, void *argument)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        failed("calloc");
    (void)count;
    uint64_t seed = *(uint64_t *)argument;
    w->random = seed * 2654435761u + (uint64_t)index * 40503u + 1;
    w->next_stamp = (uint32_t)(seed % 16 * 16 + (uint64_t)index % 16) << 24;
    me = w;
    for (int i = 0; i < SLOTS; i++) {
        w->slots[i].region = map_region(SLOT_PAGES * PAGE, "asis");
        w->slots[i].is_mapped = true;
    }
    while (now_ns() < deadline_ns)
        act(w);
    for (int i = 0; i < SLOTS; i++)
        check_slot(&w->slots[i]);
    free(w);
}

/* The seed of each process differs from the one that was printed by the process's index. */
static pid_t start(int threads, uint64_t seed)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child) {
        team(threads, work, &seed);
        printf("stress: seed %llu: %lu actions\n", (unsigned long long)seed,
               atomic_load(&actions_done));
        fflush(stdout);
        _exit(0);
    }
    return child;
}

int main(int argc, char **argv)
{
    program_name = "stress";
    if (argc > 5)
        end(2, "usage: stress [SECONDS [PROCESSES [THREADS [SEED]]]]");
    long seconds = argc > 1 ? number(argv[1], 1, 1000000) : 5;
    int processes = argc > 2 ? (int)number(argv[2], 1, 64) : 2;
    int threads = argc > 3 ? (int)number(argv[3], 1, 64) : 2;
    uint64_t seed = argc > 4 ? (uint64_t)number(argv[4], 0, INT64_MAX) : now_ns() % 1000000;
    printf("stress: %ld s, %d processes of %d threads, seed %llu\n", seconds, processes, threads,
           (unsigned long long)seed);
    deadline_ns = now_ns() + (uint64_t)seconds * 1000000000u;
    pid_t children[64];
    for (int i = 0; i < processes; i++)
        children[i] = start(threads, seed + (uint64_t)i);
    int bad = 0;
    for (int i = 0; i < processes; i++) {
        int status;
        if (waitpid(children[i], &status, 0) != children[i] || status)
            bad++;
    }
    if (bad)
        end(1, "%d processes failed with seed %llu.", bad, (unsigned long long)seed);
    printf("stress: all good\n");
    return 0;
}

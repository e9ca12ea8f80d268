/* shootdown: how many interrupts other CPUs take so that they drop translations, for each call.
 *
 * One thread makes the calls; the others, one for each further CPU, are
 *   busy       running in user mode, in the same address space,
 *   idle       asleep, after they have used the region,
 *   elsewhere  asleep, while their CPUs run other processes.
 * The counts are those of the line `TLB` in /proc/interrupts.
 */
#include "swap.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { CALLS = 50, PIECE_PAGES = 16, COW_PAGES = 16 };

static char *region; /* HUGE_BYTES, of which a call changes PIECE_PAGES. */
static const char *folio_size;

/* --- counting --- */

/* The interrupts of all CPUs, or the end of the program where they are not counted. */
static double interrupts(void)
{
    FILE *file = fopen("/proc/interrupts", "re");
    if (!file)
        end(UNSUPPORTED, "there is no /proc/interrupts.");
    char line[4096];
    double sum = -1;
    while (sum < 0 && fgets(line, sizeof line, file)) {
        char *at = line + strspn(line, " ");
        if (strncmp(at, "TLB:", 4))
            continue;
        sum = 0;
        at += 4;
        for (char *rest;; at = rest) {
            unsigned long count = strtoul(at, &rest, 10);
            if (rest == at)
                break;
            sum += (double)count;
        }
    }
    fclose(file);
    if (sum < 0)
        end(UNSUPPORTED, "/proc/interrupts has no line TLB.");
    return sum;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        end(UNSUPPORTED, "CPU %d can't be chosen: %s; run with -j of at most the CPUs.", cpu,
            strerror(errno));
}

/* --- the other CPUs --- */

enum state { BUSY, IDLE, ELSEWHERE, STATES };
static const char *const state_names[STATES] = {"busy", "idle", "elsewhere"};

static atomic_int ready;
static atomic_bool over;
static enum state state;
static pthread_mutex_t sleepers = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void *helper(void *argument)
{
    pin((int)(intptr_t)argument);
    touch_pages(region, HUGE_BYTES, 1);
    atomic_fetch_add(&ready, 1);
    if (state == BUSY) {
        while (!atomic_load(&over))
            continue;
        return NULL;
    }
    pthread_mutex_lock(&sleepers);
    while (!atomic_load(&over))
        pthread_cond_wait(&wake, &sleepers);
    pthread_mutex_unlock(&sleepers);
    return NULL;
}

static pid_t spinner(int cpu)
{
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child) {
        pin(cpu);
        for (volatile int on = 1; on;)
            continue;
    }
    return child;
}

/* --- the calls --- */

static char *piece(int call)
{
    return region + (size_t)call % (HUGE_BYTES / PAGE / PIECE_PAGES) * PIECE_PAGES * PAGE;
}

static void unmap(int call)
{
    (void)call;
    size_t bytes = PIECE_PAGES * PAGE;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        failed("mmap");
    touch_pages(at, bytes, 1);
    if (munmap(at, bytes))
        failed("munmap");
}

static void protect(int call)
{
    if (mprotect(piece(call), PIECE_PAGES * PAGE, PROT_READ))
        failed("mprotect");
    if (mprotect(piece(call), PIECE_PAGES * PAGE, PROT_READ | PROT_WRITE))
        failed("mprotect");
    touch_pages(piece(call), PIECE_PAGES * PAGE, 2);
}

static void discard(int call)
{
    touch_pages(piece(call), PIECE_PAGES * PAGE, 1);
    if (madvise(piece(call), PIECE_PAGES * PAGE, MADV_DONTNEED))
        failed("MADV_DONTNEED");
}

/* A child that does nothing until it is killed, so that no scheduler decides what it shares. */
static pid_t sleeper(void)
{
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child)
        for (;;)
            pause();
    return child;
}

static void kill_child(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void fork_exit(int call)
{
    (void)call;
    touch_pages(region, HUGE_BYTES, 1);
    kill_child(sleeper());
}

static pid_t sharer; /* A child that has a copy of the region. */

static void write_shared(int call)
{
    if (call % (int)(HUGE_BYTES / PAGE / COW_PAGES) == 0) {
        if (sharer)
            kill_child(sharer);
        touch_pages(region, HUGE_BYTES, 1);
        sharer = sleeper();
    }
    touch_pages(piece(call), COW_PAGES * PAGE, 3);
}

static void page_out(int call)
{
    touch_pages(piece(call), PIECE_PAGES * PAGE, 1);
    if (madvise(piece(call), PIECE_PAGES * PAGE, MADV_PAGEOUT))
        failed("MADV_PAGEOUT");
}

static void collapse(int call)
{
    (void)call;
    if (madvise(region, HUGE_BYTES, MADV_DONTNEED))
        failed("MADV_DONTNEED");
    madvise(region, HUGE_BYTES, MADV_NOHUGEPAGE);
    touch_pages(region, HUGE_BYTES, 1);
    madvise(region, HUGE_BYTES, MADV_HUGEPAGE);
    if (madvise(region, HUGE_BYTES, MADV_COLLAPSE))
        failed("MADV_COLLAPSE");
}

static const struct {
    const char *name;
    void (*make)(int call);
    int calls;
} kinds[] = {
    {"unmap", unmap, CALLS},       {"protect", protect, CALLS},
    {"dontneed", discard, CALLS},  {"fork", fork_exit, CALLS},
    {"cow", write_shared, CALLS},  {"collapse", collapse, CALLS / 5},
    {"pageout", page_out, CALLS}, /* The last: it needs a device. */
};

static void measure(size_t kind, int others)
{
    pthread_t threads[64];
    pid_t spinners[64];
    atomic_store(&ready, 0);
    atomic_store(&over, false);
    for (int i = 0; i < others; i++)
        if (pthread_create(&threads[i], NULL, helper, (void *)(intptr_t)(i + 1)))
            end(1, "pthread_create failed.");
    while (atomic_load(&ready) < others)
        sched_yield();
    for (int i = 0; i < others && state == ELSEWHERE; i++)
        spinners[i] = spinner(i + 1);
    struct timespec rest = {.tv_nsec = 20000000};
    nanosleep(&rest, NULL);

    double before = interrupts();
    for (int call = 0; call < kinds[kind].calls; call++)
        kinds[kind].make(call);
    double each = (interrupts() - before) / kinds[kind].calls;

    char metric[64];
    snprintf(metric, sizeof metric, "%s-%s", kinds[kind].name, state_names[state]);
    figure(folio_size, metric, each, "ints/call");
    atomic_store(&over, true);
    pthread_mutex_lock(&sleepers);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&sleepers);
    for (int i = 0; i < others; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < others && state == ELSEWHERE; i++)
        kill_child(spinners[i]);
    if (sharer)
        kill_child(sharer);
    sharer = 0;
}

/* One call, in each state of the other CPUs. */
static void measure_in_each(size_t kind, const struct options *o)
{
    for (state = BUSY; state < STATES; state++) {
        region = map_region(HUGE_BYTES, folio_size);
        touch_pages(region, HUGE_BYTES, 1);
        measure(kind, o->threads - 1);
        munmap(region, HUGE_BYTES);
    }
}

int main(int argc, char **argv)
{
    program_name = "shootdown";
    struct options o = options(argc, argv, 2);
    size_t last = sizeof kinds / sizeof kinds[0] - 1;
    pin(0);
    for (size_t i = 0; i < o.size_count; i++) {
        folio_size = o.sizes[i];
        only_thp(&o, folio_size);
        for (size_t kind = 0; kind < last; kind++)
            measure_in_each(kind, &o);
    }
    need_swap();
    static char page[MAX_PAGE] __attribute__((aligned(MAX_PAGE)));
    int fd = open_swap(NULL, 8 * MIB, 16 * MIB);
    write_header(fd, page);
    if (close(fd))
        failed("close");
    swap_on();
    for (size_t i = 0; i < o.size_count; i++) {
        folio_size = o.sizes[i];
        only_thp(&o, folio_size);
        measure_in_each(last, &o);
    }
    swap_off();
    return 0;
}

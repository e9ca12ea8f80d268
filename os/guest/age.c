/* age: a machine's simulated life, and the large folios that faults get at its end.
 *
 * Each step is an hour. In each, programs and files end, parts of memory are given back and touched
 * again, a program forks, and the kernel's frames (full pipes) come and go. Then random programs
 * touch memory in small acts until as much of the memory that was free at first is in use as
 * planned: by bytes 30 per cent base pages, 20 folios of 64K, 30 of 2M, and 20 a file in memory.
 * Sizes and lengths of life spread over powers of two. All chances come from one seed. The last
 * week counts.
 *
 *     age [--full PERCENT] [--days DAYS] [--seed SEED] [--only VARIANT] and the usual options:
 *     -t sets 64K and 2M to `always`, -m is the region whose fresh faults are measured, -n counts
 *     lives of one seed each, for medians
 *
 * Each program is a process; it waits for one word of the first process at a time, so with one CPU
 * nothing else runs meanwhile but the kernel's own work.
 *
 *     grouping    no fault compacts; compact_memory is written at the end of the life
 *     demand      faults compact: defrag is `always`
 *     background  the same, and the kernel may compact ahead during a second of rest in each step
 *
 * A fault is one that compacted where the counter compact_stall differs after it. The cost of a
 * block gained is the time of all those faults, successful or not, less the usual time of such a
 * fault where memory is fresh, divided by the blocks that they had.
 */
#include "common.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

enum { STEPS = 24, WEEK = 7 * STEPS, LONGEST = 14 * STEPS, KERNEL_LONGEST = 180 * STEPS };
enum { SLOTS = 400, FILES = 48, PIPES = 1000, PIPE_PAGES = 16, OPEN_PIPES = 8, SAMPLES = 1 << 14 };
/* Per step: parts that are given back, pages that are touched again, forks. */
enum { DISCARDS = 12, TOUCHES = 48, ACTS_MOST = 100000 };
/* Per cent of all frames in pipes. The tables and stacks of programs are about as much again. */
enum { KERNEL_SHARE = 2 };
enum { BLOCK = 512, MIDDLE = 16, EACH = BLOCK - 2 * MIDDLE };

enum kind { BASE, SMALL, LARGE, KINDS };
enum op { GROW, AGAIN, DISCARD, FORK, LEAVE };

/* The faults for one size. */
struct tally {
    uint64_t wanted, had;
};

/* The memory of all processes: a word for each program, and the results. */
static struct shared {
    uint32_t go[SLOTS], done;
    enum op op;
    size_t from, to; /* pages; or the slot of a fork */
    bool measures;
    struct tally small, large;
    uint64_t stalls, gained, moved, cost_ns, aside_ns; /* aside: for reading counters */
    double fresh_small, fresh_large, copy;
    size_t pages; /* that growth has touched or written */
    size_t samples;
    double sample[SAMPLES]; /* of faults that wanted 2M */
} *shared;

struct process {
    pid_t pid; /* 0: the slot is free */
    enum kind kind;
    bool grows;
    size_t pages, touched;
    long ends;
};

struct file {
    int fd;
    size_t at, pages;
    long ends;
};

struct pipe {
    int fd[2];
    size_t pages;
    long ends;
};

/* The life of the first process. */
static struct life {
    uint64_t random;
    long now;
    struct process processes[SLOTS];
    struct file files[FILES];
    size_t file_count;
    struct pipe pipes[PIPES];
    size_t pipe_count, pipe_pages, all_pages, kept_pages, planned_pages;
} life;

static size_t below(size_t bound)
{
    return (size_t)(next_random(&life.random) >> 11) % bound;
}

/* A number from `least` to `most`; each power of two is as likely as any other. */
static size_t spread(size_t least, size_t most)
{
    size_t powers = 1;
    while (least << powers < most)
        powers++;
    size_t low = least << below(powers);
    size_t found = low + below(low);
    return found < most ? found : most;
}

/* The value behind a name in /proc/vmstat; 0 if there is none. */
static uint64_t counted(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

struct events {
    uint64_t stalls, moved;
};

static struct events events(void)
{
    static char text[1 << 14];
    size_t length = 0;
    uint64_t start = now_ns();
    int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
    for (ssize_t count; fd >= 0 && length < sizeof text - 1; length += (size_t)count)
        if ((count = read(fd, text + length, sizeof text - 1 - length)) <= 0)
            break;
    if (fd >= 0)
        close(fd);
    text[length] = 0;
    shared->aside_ns += now_ns() - start;
    uint64_t stalls = counted(text, "\ncompact_stall ");
    return (struct events){stalls, counted(text, "\npgmigrate_success ")};
}

/* Free blocks of 2M, from /proc/buddyinfo: larger ones count as several. */
static double free_blocks(void)
{
    char line[512];
    double blocks = 0;
    FILE *file = fopen("/proc/buddyinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *word = strstr(line, "zone");
        int order = -2; /* The words `zone` and its name come first. */
        for (word = word ? strtok(word, " \n") : NULL; word; word = strtok(NULL, " \n"), order++)
            if (order >= 9)
                blocks += (double)(strtoull(word, NULL, 10) << (order - 9));
    }
    if (file)
        fclose(file);
    return blocks;
}

static size_t free_pages(void)
{
    struct sysinfo info;
    if (sysinfo(&info))
        failed("sysinfo");
    return (size_t)info.freeram * info.mem_unit / PAGE;
}

static void sleep_on(uint32_t *word)
{
    /* A program that was killed never answers; no act takes as long as this. */
    struct timespec most = {.tv_sec = 100};
    struct timespec *until = word == &shared->done ? &most : NULL;
    while (!__atomic_load_n(word, __ATOMIC_SEQ_CST))
        if (syscall(SYS_futex, word, FUTEX_WAIT, 0, until, NULL, 0) && errno == ETIMEDOUT)
            end(1, "a program does not answer.");
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
}

static void wake(uint32_t *word)
{
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Whether all of the memory is there. */
static bool is_there(char *at, size_t pages)
{
    unsigned char there[BLOCK];
    if (mincore(at, pages * PAGE, there))
        failed("mincore");
    for (size_t i = 0; i < pages; i++)
        if (!(there[i] & 1))
            return false;
    return true;
}

/* Writes to the first page; the time. */
static double touch(char *at)
{
    uint64_t start = now_ns();
    *(volatile char *)at = 1;
    return (double)(now_ns() - start);
}

/* A fault that wants 64K; the rest of the pages after it. */
static void touch_small(char *at)
{
    touch(at);
    bool had = is_there(at, MIDDLE);
    if (shared->measures) {
        shared->small.wanted++;
        shared->small.had += had;
    }
    touch_pages(at, MIDDLE * PAGE, 1);
}

/* A fault that wants 2M. Its cost is the time beyond the same fault's where memory is fresh. */
static void touch_large(char *at)
{
    bool measures = shared->measures;
    struct events before = measures ? events() : (struct events){0};
    double ns = touch(at);
    bool had = is_there(at, BLOCK);
    if (measures) {
        struct events after = events();
        bool stalled = after.stalls != before.stalls;
        double usual = had ? shared->fresh_large : shared->fresh_small;
        shared->large.wanted++;
        shared->large.had += had;
        if (stalled) {
            shared->stalls++;
            shared->gained += had;
            shared->moved += after.moved - before.moved;
            shared->cost_ns += ns > usual ? (uint64_t)(ns - usual) : 0;
        }
        if (shared->samples < SAMPLES)
            shared->sample[shared->samples++] = ns;
    }
    if (had)
        return;
    touch_pages(at, MIDDLE * PAGE, 1);
    for (size_t page = MIDDLE; page < BLOCK; page += MIDDLE)
        touch_small(at + page * PAGE);
}

/* The place of a program's page. Areas of folios of 64K leave the ends of each block out, so that
 * none of 2M fits. */
static char *place(char *base, enum kind kind, size_t page)
{
    if (kind == SMALL)
        page = page / EACH * BLOCK + MIDDLE + page % EACH;
    return base + page * PAGE;
}

static void grow(char *base, enum kind kind, size_t from, size_t to)
{
    size_t step = kind == LARGE ? BLOCK : kind == SMALL ? MIDDLE : 1;
    for (size_t page = from; page < to; page += step) {
        char *at = place(base, kind, page);
        if (kind == LARGE)
            touch_large(at);
        else if (kind == SMALL)
            touch_small(at);
        else
            *(volatile char *)at = 1;
    }
}

static void discard(char *base, enum kind kind, size_t from, size_t to)
{
    for (size_t page = from; page < to; page++)
        if (madvise(place(base, kind, page), PAGE, MADV_DONTNEED))
            failed("MADV_DONTNEED");
}

/* A program: it does as it is told. */
__attribute__((noreturn)) static void obey(size_t slot, char *base, enum kind kind)
{
    for (;;) {
        sleep_on(&shared->go[slot]);
        size_t from = shared->from, to = shared->to;
        switch (shared->op) {
        case GROW: grow(base, kind, from, to); break;
        case AGAIN: *(volatile char *)place(base, kind, from) = 2; break;
        case DISCARD: discard(base, kind, from, to); break;
        case FORK: {
            /* The first process is to wait for it. */
            long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
            if (!pid) {
                slot = from;
                continue;
            }
            shared->to = pid > 0 ? (size_t)pid : 0;
            break;
        }
        default: _exit(0);
        }
        wake(&shared->done);
    }
}

static void ask(size_t slot, enum op op, size_t from, size_t to)
{
    shared->op = op;
    shared->from = from;
    shared->to = to;
    wake(&shared->go[slot]);
    if (op != LEAVE)
        sleep_on(&shared->done);
}

/* An address range with the areas of a program. */
static char *areas(enum kind kind, size_t pages)
{
    size_t blocks = kind == SMALL ? (pages + EACH - 1) / EACH : (pages + BLOCK - 1) / BLOCK;
    char *base = map_region(blocks * HUGE_BYTES, kind == BASE ? "4K" : "asis");
    for (size_t i = 0; kind == SMALL && i < blocks; i++) {
        char *block = base + i * HUGE_BYTES, *end = block + HUGE_BYTES;
        if (munmap(block, MIDDLE * PAGE) || munmap(end - MIDDLE * PAGE, MIDDLE * PAGE))
            failed("munmap");
    }
    return base;
}

static void start(size_t slot, enum kind kind)
{
    struct process *new = &life.processes[slot];
    size_t pages = kind == BASE    ? spread(16, 2048)
                   : kind == SMALL ? spread(4, 128) * MIDDLE
                                   : spread(1, 16) * BLOCK;
    *new = (struct process){
        .kind = kind, .grows = true, .pages = pages, .ends = life.now + (long)spread(1, LONGEST)};
    shared->go[slot] = 0;
    new->pid = fork();
    if (new->pid < 0)
        failed("fork");
    if (!new->pid) {
        /* A file or pipe ends when the first process closes it. */
        if (syscall(SYS_close_range, 3, ~0u, 0))
            failed("close_range");
        obey(slot, areas(kind, pages), kind);
    }
}

static void leave(struct process *process)
{
    ask((size_t)(process - life.processes), LEAVE, 0, 0);
    if (waitpid(process->pid, NULL, 0) != process->pid)
        failed("waitpid");
    process->pid = 0;
}

static size_t free_slot(void)
{
    size_t slot = 0;
    while (slot < SLOTS && life.processes[slot].pid)
        slot++;
    return slot;
}

/* A program touches some more of its memory; a new one, unless several grow. */
static void grow_kind(enum kind kind)
{
    static const size_t chunks[KINDS] = {32, 64, BLOCK};
    size_t growing[SLOTS], count = 0;
    for (size_t slot = 0; slot < SLOTS; slot++) {
        struct process *p = &life.processes[slot];
        if (p->pid && p->grows && p->kind == kind && p->touched < p->pages)
            growing[count++] = slot;
    }
    size_t slot = free_slot();
    if (count >= 4 || (count && slot == SLOTS))
        slot = growing[below(count)];
    else if (slot < SLOTS)
        start(slot, kind);
    else
        return;
    struct process *p = &life.processes[slot];
    size_t end = p->touched + chunks[kind] < p->pages ? p->touched + chunks[kind] : p->pages;
    ask(slot, GROW, p->touched, end);
    shared->pages += end - p->touched;
    p->touched = end;
}

static void close_file(size_t at)
{
    close(life.files[at].fd);
    life.files[at] = life.files[--life.file_count];
}

/* A file in memory is written on; a new one, unless several are unfinished. */
static void write_file(void)
{
    static char text[64 * PAGE];
    size_t unfinished[FILES], count = 0;
    for (size_t at = 0; at < life.file_count; at++)
        if (life.files[at].at < life.files[at].pages)
            unfinished[count++] = at;
    size_t at = count >= 2 ? unfinished[below(count)] : life.file_count;
    if (count < 2) {
        for (size_t first = 0; at == FILES && first < FILES; first++)
            if (life.files[first].ends <= life.files[at % FILES].ends)
                at = first;
        if (at < life.file_count) {
            close_file(at);
            at = life.file_count;
        }
        int fd = (int)syscall(SYS_memfd_create, "file", 0u);
        if (fd < 0)
            failed("memfd_create");
        life.files[at] = (struct file){fd, 0, spread(16, life.all_pages / 32),
                                       life.now + (long)spread(1, LONGEST)};
        life.file_count++;
    }
    struct file *file = &life.files[at];
    size_t pages = file->pages - file->at < 64 ? file->pages - file->at : 64;
    if (write(file->fd, text, pages * PAGE) != (ssize_t)(pages * PAGE))
        failed("write");
    file->at += pages;
    shared->pages += pages;
}

static void close_pipe(size_t at)
{
    struct pipe *pipe = &life.pipes[at];
    close(pipe->fd[0]);
    close(pipe->fd[1]);
    life.pipe_pages -= pipe->pages;
    *pipe = life.pipes[--life.pipe_count];
}

/* The kernel takes a frame: a page goes into one of the last pipes. */
static void fill_pipe(void)
{
    static const char page[PAGE];
    size_t open[PIPES], count = 0;
    for (size_t at = 0; at < life.pipe_count; at++)
        if (life.pipes[at].pages < PIPE_PAGES)
            open[count++] = at;
    size_t at = life.pipe_count;
    if (count >= OPEN_PIPES || (count && at == PIPES)) {
        at = open[below(count)];
    } else if (at < PIPES) {
        life.pipes[at] = (struct pipe){.ends = life.now + (long)spread(1, KERNEL_LONGEST)};
        if (pipe(life.pipes[at].fd))
            failed("pipe");
        life.pipe_count++;
    } else {
        end(1, "too many pipes.");
    }
    if (write(life.pipes[at].fd[1], page, PAGE) != (ssize_t)PAGE)
        failed("write to a pipe");
    life.pipes[at].pages++;
    life.pipe_pages++;
}

static void supply_kernel(size_t used)
{
    size_t wanted = life.all_pages * KERNEL_SHARE / 100;
    if (used < life.planned_pages)
        wanted = wanted * used / life.planned_pages;
    while (life.pipe_pages < wanted)
        fill_pipe();
}

static void end_due(void)
{
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (life.processes[slot].pid && life.processes[slot].ends <= life.now)
            leave(&life.processes[slot]);
    for (size_t at = 0; at < life.file_count;)
        life.files[at].ends <= life.now ? close_file(at) : (void)at++;
    for (size_t at = 0; at < life.pipe_count;)
        life.pipes[at].ends <= life.now ? close_pipe(at) : (void)at++;
}

/* The slot of a program by chance that has touched memory; SLOTS if there is none. */
static size_t some_program(void)
{
    size_t found[SLOTS], count = 0;
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (life.processes[slot].pid && life.processes[slot].touched)
            found[count++] = slot;
    return count ? found[below(count)] : SLOTS;
}

/* A page of the program is touched again. */
static void again(size_t slot)
{
    ask(slot, AGAIN, below(life.processes[slot].touched), 0);
}

/* A program forks; its child writes some pages, and ends soon. */
static void fork_one(void)
{
    size_t parent = some_program(), slot = free_slot();
    if (parent == SLOTS || slot == SLOTS)
        return;
    shared->go[slot] = 0;
    ask(parent, FORK, slot, 0);
    if (!shared->to)
        return;
    life.processes[slot] = life.processes[parent];
    life.processes[slot].pid = (pid_t)shared->to;
    life.processes[slot].grows = false;
    life.processes[slot].ends = life.now + (long)spread(1, STEPS / 2);
    for (size_t left = spread(1, 64); left; left--)
        again(slot);
}

static void disturb(void)
{
    for (int i = 0; i < DISCARDS; i++) {
        size_t slot = some_program();
        if (slot == SLOTS)
            return;
        size_t touched = life.processes[slot].touched, from = below(touched);
        size_t to = from + spread(1, 64);
        ask(slot, DISCARD, from, to < touched ? to : touched);
    }
    for (int i = 0; i < TOUCHES; i++)
        again(some_program());
    fork_one();
}

static void grow_some(void)
{
    /* Weights times pages give the shares by bytes. */
    size_t chance = below(240 + 80 + 15 + 80);
    if (chance < 240)
        grow_kind(BASE);
    else if (chance < 240 + 80)
        grow_kind(SMALL);
    else if (chance < 240 + 80 + 15)
        grow_kind(LARGE);
    else
        write_file();
}

static void step(void)
{
    life.now++;
    end_due();
    disturb();
    for (int acts = 0; acts < ACTS_MOST; acts++) {
        size_t now = free_pages();
        if (now <= life.kept_pages)
            return;
        supply_kernel(life.planned_pages + life.kept_pages - now);
        grow_some();
    }
}

/* The cost of faults where memory is fresh, and of the kernel's copy of a page: a write that copies
 * less one that need not. */
static void measure_fresh(size_t bytes)
{
    double values[BLOCK];
    size_t count = bytes / HUGE_BYTES < BLOCK ? bytes / HUGE_BYTES : BLOCK;
    char *region = map_region(count * HUGE_BYTES, "asis");
    for (size_t i = 0; i < count; i++)
        values[i] = touch(region + i * HUGE_BYTES);
    if (!is_there(region, BLOCK))
        end(UNSUPPORTED, "a fault gets no 2M folio where all memory is free.");
    shared->fresh_large = median(values, count);
    munmap(region, count * HUGE_BYTES);
    region = areas(SMALL, EACH);
    for (count = 0; count < EACH / MIDDLE; count++)
        values[count] = touch(place(region, SMALL, count * MIDDLE));
    shared->fresh_small = median(values, count);
    munmap(place(region, SMALL, 0), EACH * PAGE);
    region = map_region(HUGE_BYTES, "4K");
    touch_pages(region, HUGE_BYTES, 1);
    pid_t child = fork();
    if (!child) {
        for (size_t i = 0; i < BLOCK; i++)
            values[i] = touch(region + i * PAGE);
        shared->copy = median(values, BLOCK);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        failed("fork");
    for (size_t i = 0; i < BLOCK; i++)
        values[i] = touch(region + i * PAGE);
    shared->copy -= median(values, BLOCK);
    munmap(region, HUGE_BYTES);
}

enum variant { GROUPING, DEMAND, BACKGROUND, VARIANTS };
static const char *const variant_names[VARIANTS] = {"grouping", "demand", "background"};

enum metric {
    WANTED_2M, HAD_2M, HAD_64K, MEDIAN, P99, STALLED, GAINED, GAIN, GAIN_LESS, MOVED, LIFE, IN_BLOCKS,
    COMPACT_BLOCKS, COMPACT_NS, COMPACT_PAGES, COMPACT, COMPACT_LESS, COMPACT_MOVED, METRICS
};
static const struct {
    const char *name, *unit;
} metrics[METRICS] = {
    {"wanted-2M", "blocks"},
    {"had-2M", "percent"},
    {"had-64K", "percent"},
    {"fault-2M-median", "ns/fault"},
    {"fault-2M-99-of-100", "ns/fault"},
    {"compacted-for", "faults"},
    {"gained-2M", "blocks"},
    {"gain-2M", "ns/block"},
    {"gain-2M-without-copies", "ns/block"},
    {"gain-2M-moved", "pages/block"},
    {"last-week", "ns/page"},
    {"free-in-blocks", "percent"},
    {"compact-memory-gained", "blocks"},
    {"compact-memory-took", "ns"},
    {"compact-memory-pages", "pages"},
    {"compact-memory", "ns/block"},
    {"compact-memory-without-copies", "ns/block"},
    {"compact-memory-moved", "pages/block"},
};

static void apply(const struct options *o, enum variant variant)
{
    if (!o->set_thp)
        return;
    for (size_t kib = 8; kib <= 2048; kib *= 2)
        set_thp(kib, kib == 64 || kib == 2048 ? "always" : "never");
    /* Where a kernel lacks one of these, it has nothing to set. */
    put_word(THP_DIR "/enabled", "always");
    put_word(THP_DIR "/defrag", variant == GROUPING ? "never" : "always");
    put_word(THP_DIR "/khugepaged/pages_to_scan", "1");
    put_word(THP_DIR "/khugepaged/scan_sleep_millisecs", "100000000");
    put_word("/proc/sys/vm/compaction_proactiveness", variant == BACKGROUND ? "20" : "0");
}

/* The value per count; -1 where there is none to divide by, and so no figure. */
static double per(double value, double count)
{
    return count > 0 ? value / count : -1;
}

static double less_copies(double ns, double moved)
{
    double rest = ns - moved * shared->copy;
    return rest > 0 ? rest : 0;
}

static void compact_memory(double *found)
{
    double before = free_blocks();
    struct events first = events();
    uint64_t start = now_ns();
    if (!put_word("/proc/sys/vm/compact_memory", "1"))
        return;
    double ns = (double)(now_ns() - start), moved = (double)(events().moved - first.moved);
    double gained = free_blocks() - before;
    found[COMPACT_BLOCKS] = gained;
    found[COMPACT_NS] = ns;
    found[COMPACT_PAGES] = moved;
    found[COMPACT] = per(ns, gained);
    found[COMPACT_LESS] = per(less_copies(ns, moved), gained);
    found[COMPACT_MOVED] = per(moved, gained);
}

static void results(double *found)
{
    double gained = (double)shared->gained, moved = (double)shared->moved;
    double ns = (double)shared->cost_ns;
    size_t samples = shared->samples;
    found[WANTED_2M] = (double)shared->large.wanted;
    found[HAD_2M] = per(100 * (double)shared->large.had, (double)shared->large.wanted);
    found[HAD_64K] = per(100 * (double)shared->small.had, (double)shared->small.wanted);
    found[STALLED] = (double)shared->stalls;
    found[GAINED] = gained;
    found[GAIN] = per(ns, gained);
    found[GAIN_LESS] = per(less_copies(ns, moved), gained);
    found[MOVED] = per(moved, gained);
    found[MEDIAN] = samples ? median(shared->sample, samples) : -1;
    found[P99] = samples ? shared->sample[samples * 99 / 100] : -1; /* They are sorted now. */
}

/* One life. */
static void live(enum variant variant, long days, uint64_t seed, long full, double *found)
{
    size_t available = free_pages();
    memset(&life, 0, sizeof life);
    life.random = seed * 0x9E3779B97F4A7C15u;
    struct sysinfo info;
    if (sysinfo(&info))
        failed("sysinfo");
    life.all_pages = (size_t)info.totalram * info.mem_unit / PAGE;
    life.planned_pages = available * (size_t)full / 100;
    life.kept_pages = available - life.planned_pages;
    shared->small = shared->large = (struct tally){0};
    shared->stalls = shared->gained = shared->moved = shared->cost_ns = shared->samples = 0;
    long first = days * STEPS > WEEK ? days * STEPS - WEEK : 0;
    uint64_t start = now_ns();
    for (long hour = 0; hour < days * STEPS; hour++) {
        if (hour == first) {
            shared->measures = true;
            shared->aside_ns = shared->pages = 0;
            start = now_ns();
        }
        step();
        if (variant == BACKGROUND)
            sleep(1);
    }
    shared->measures = false;
    double ns = (double)(now_ns() - start - shared->aside_ns);
    if (variant != BACKGROUND) /* Its time has the rests in it. */
        found[LIFE] = per(ns, (double)shared->pages);
    results(found);
    found[IN_BLOCKS] = per(100 * BLOCK * free_blocks(), (double)free_pages());
    if (variant == GROUPING)
        compact_memory(found);
    life.now = KERNEL_LONGEST * 4;
    end_due();
}

int main(int argc, char **argv)
{
    program_name = "age";
    const char *word = taken(&argc, argv, "--full");
    /* At 80 per cent Linux has a block for each fault, and none of them compacts. */
    long full = word ? number(word, 10, 98) : 90;
    word = taken(&argc, argv, "--days");
    long days = word ? number(word, 1, 365) : 30;
    word = taken(&argc, argv, "--seed");
    uint64_t seed = word ? (uint64_t)number(word, 1, INT32_MAX) : 1;
    word = taken(&argc, argv, "--only");
    bool is_known = !word;
    for (int i = 0; i < VARIANTS; i++)
        is_known |= word && !strcmp(word, variant_names[i]);
    if (!is_known)
        end(2, "`%s` is none of grouping, demand, background.", word);
    struct options o = options(argc, argv, 64);
    struct rlimit files = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &files); /* If it fails, the pipes tell. */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        failed("mmap");
    char size[16];
    snprintf(size, sizeof size, "%ld%%", full);
    apply(&o, DEMAND);
    measure_fresh(o.bytes);
    figure(size, "free-at-first", (double)free_pages() / 256, "MiB");
    figure(size, "fresh-fault-2M", shared->fresh_large, "ns/fault");
    figure(size, "fresh-fault-64K", shared->fresh_small, "ns/fault");
    figure(size, "copy", shared->copy, "ns/page");
    for (enum variant variant = 0; variant < VARIANTS; variant++) {
        static double found[METRICS][MAX_ROUNDS];
        if (word && strcmp(word, variant_names[variant]))
            continue;
        apply(&o, variant);
        for (size_t round = 0; round < o.rounds; round++) {
            double one[METRICS];
            for (int i = 0; i < METRICS; i++)
                one[i] = -1;
            live(variant, days, seed + round, full, one);
            for (int i = 0; i < METRICS; i++)
                found[i][round] = one[i];
        }
        for (int i = 0; i < METRICS; i++) {
            /* A life in which compaction gained nothing has no cost for each block. */
            size_t count = 0;
            for (size_t round = 0; round < o.rounds; round++)
                if (found[i][round] >= 0)
                    found[i][count++] = found[i][round];
            char metric[64];
            snprintf(metric, sizeof metric, "%s-%s", variant_names[variant], metrics[i].name);
            if (count)
                figure(size, metric, median(found[i], count), metrics[i].unit);
        }
    }
    return 0;
}

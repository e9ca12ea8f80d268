/* textbench: the cost of faults in a mapped file, cold and warm, and the part of it that can be
 * folded.
 *
 * textbench [-t] [-m MIB] [-n ROUNDS] [-j THREADS] FILE
 *
 * The first MIB of FILE are used. They are mapped as the text of a program is. Their pages are
 * touched in one of three orders, each in its own third of the file: `random` is all pages,
 * shuffled; `sparse` a sixteenth of them, shuffled; `sequential` all in order. The first pass of an
 * order is `cold`: only a directory was read before. The other passes are `warm`: mapped anew, with
 * the file in memory.
 *
 * The time of the same touches with all pages mapped is subtracted, so the faults remain. A cold
 * figure is the thread's CPU time, without its waits for the disk.
 */
#include "common.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define FOLD_PAGES 16 /* of one folded entry: 64 KiB */

enum { RANDOM, SPARSE, SEQUENTIAL, ORDERS };
static const char *const names[ORDERS] = {"random", "sparse", "sequential"};

/* A part of the file, and the pages of it that are touched, in order. */
struct part {
    int fd;
    off_t at;
    size_t pages, count;
    uint32_t *order;
};

/* The cost of a pass. */
struct pass {
    double ns, faults, mapped, foldable;
};

/* Keeps the touches from being left out. */
static volatile unsigned char sink;

static uint64_t thread_ns(void)
{
    struct timespec time;
    /* Quire's kernel adds to the clock when a thread leaves its CPU. */
    sched_yield();
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time))
        failed("CLOCK_THREAD_CPUTIME_ID");
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static long faults(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        failed("getrusage");
    return usage.ru_minflt + usage.ru_majflt;
}

static void make_order(struct part *part, int order)
{
    part->order = malloc(part->pages * sizeof *part->order);
    if (!part->order)
        failed("malloc");
    for (size_t i = 0; i < part->pages; i++)
        part->order[i] = (uint32_t)i;
    uint64_t seed = 88172645463325252u;
    for (size_t i = part->pages; order != SEQUENTIAL && i > 1; i--) {
        size_t other = next_random(&seed) % i;
        uint32_t page = part->order[i - 1];
        part->order[i - 1] = part->order[other];
        part->order[other] = page;
    }
    part->count = order == SPARSE ? part->pages / 16 : part->pages;
}

static void touch(const struct part *part, const unsigned char *text)
{
    for (size_t i = 0; i < part->count; i++)
        sink = *(const volatile unsigned char *)(text + part->order[i] * PAGE);
}

/* Counts the pages that are mapped, and those of aligned blocks with frames that could be
 * folded. */
static void look(const unsigned char *text, size_t pages, struct pass *pass)
{
    static uint64_t words[FOLD_PAGES];
    const uint64_t present = 1ull << 63, frame = (1ull << 55) - 1;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        failed("opening pagemap");
    for (size_t at = 0; at + FOLD_PAGES <= pages; at += FOLD_PAGES) {
        off_t place = (off_t)(((uintptr_t)text / PAGE + at) * sizeof *words);
        if (pread(fd, words, sizeof words, place) != (ssize_t)sizeof words)
            failed("reading pagemap");
        size_t here = 0, runs = 0;
        for (size_t i = 0; i < FOLD_PAGES; i++) {
            here += (words[i] & present) != 0;
            runs += (words[i] & frame) == (words[0] & frame) + i;
        }
        bool is_aligned = (words[0] & frame) % FOLD_PAGES == 0;
        pass->mapped += (double)here;
        if (here == FOLD_PAGES && runs == FOLD_PAGES && is_aligned)
            pass->foldable += FOLD_PAGES;
    }
    close(fd);
}

/* Maps the part at a multiple of 2 MiB, touches it twice, and unmaps it. */
static struct pass once(const struct part *part, uint64_t (*clock)(void))
{
    size_t bytes = part->pages * PAGE, room = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    char *region = map_region(room, "asis");
    unsigned char *text = mmap(region, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
                               part->fd, part->at);
    if (text == MAP_FAILED)
        failed("mmap");
    struct pass pass = {0};
    long before = faults();
    uint64_t start = clock();
    touch(part, text);
    uint64_t middle = clock();
    pass.faults = (double)(faults() - before);
    look(text, part->pages, &pass);
    uint64_t again = clock();
    touch(part, text);
    pass.ns = (double)(middle - start) - (double)(clock() - again);
    if (munmap(region, room))
        failed("munmap");
    return pass;
}

static void tell(const char *order, const char *when, double value, const char *what,
                 const char *unit)
{
    char metric[64];
    snprintf(metric, sizeof metric, "%s-%s-%s", order, when, what);
    figure("64K", metric, value, unit);
}

static void tell_all(const struct part *part, const char *order, const char *when,
                     const struct pass *pass)
{
    double count = (double)part->count;
    tell(order, when, pass->ns / count, "page", "ns/page");
    tell(order, when, pass->faults ? pass->ns / pass->faults : 0, "fault", "ns/fault");
    tell(order, when, pass->faults * 1000 / count, "faults", "in-1000");
    tell(order, when, pass->mapped * 100 / (double)part->pages, "mapped", "percent");
    double foldable = pass->mapped > 0 ? pass->foldable * 100 / pass->mapped : 0;
    tell(order, when, foldable, "foldable", "percent");
}

static void measure(const struct part *part, int order, size_t rounds)
{
    struct pass cold = once(part, thread_ns), warm = {0};
    double values[MAX_ROUNDS];
    for (size_t round = 0; round < rounds; round++) {
        warm = once(part, now_ns);
        values[round] = warm.ns;
    }
    warm.ns = median(values, rounds);
    tell_all(part, names[order], "cold", &cold);
    tell_all(part, names[order], "warm", &warm);
}

int main(int argc, char **argv)
{
    program_name = "textbench";
    /* The last word is the file; the others are the usual ones, of which no size is needed. */
    if (argc < 2)
        end(2, "name a file.");
    const char *path = argv[argc - 1];
    struct options o = options(argc - 1, argv, 16);
    struct stat data;
    if (stat(path, &data) || !S_ISREG(data.st_mode))
        end(1, "there is no file `%s`.", path);
    size_t whole = (size_t)data.st_size < o.bytes ? (size_t)data.st_size : o.bytes;
    size_t third = whole / ORDERS & ~(FOLD_PAGES * PAGE - 1);
    if (!third)
        end(1, "`%s` is too small.", path);
    for (int order = 0; order < ORDERS; order++) {
        /* A file that is opened anew has no history of reads. */
        struct part part = {.at = (off_t)(third * (size_t)order), .pages = third / PAGE};
        part.fd = open(path, O_RDONLY | O_CLOEXEC);
        if (part.fd < 0)
            failed("open");
        make_order(&part, order);
        measure(&part, order, o.rounds);
        free(part.order);
        close(part.fd);
    }
    return 0;
}

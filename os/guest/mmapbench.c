/* mmapbench: mapping and unmapping by many threads, in the manner of CortenMM's micro-benchmarks:
 * many small regions of one thread each, one large region of each thread, and a large region in
 * which all threads map neighbouring pieces. */
#include "team.h"

enum { SMALL_BYTES = 16 << 10, SMALL_COUNT = 512 };

struct job {
    const struct options *options;
    const char *size;
    size_t piece;      /* bytes of a region */
    size_t count;      /* regions of each thread */
    bool is_touched;   /* each page is written before it is unmapped */
    char *shared;      /* regions lie side by side in here, thread by thread; or NULL */
    char *regions[64]; /* of each thread, where a thread has one large piece of address space */
    uint64_t map_ns, unmap_ns;
};

static void map_all(int index, int count, void *argument)
{
    struct job *job = argument;
    for (size_t i = 0; i < job->count; i++) {
        /* In the shared region neighbours belong to different threads. */
        size_t place = job->shared ? i * (size_t)count + (size_t)index : i;
        char *base = job->shared ? job->shared : job->regions[index];
        char *at = mmap(base + place * job->piece, job->piece, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (at == MAP_FAILED)
            failed("mmap");
        if (size_kib(job->size) > 4)
            madvise(at, job->piece, MADV_HUGEPAGE);
        if (job->is_touched)
            touch_pages(at, job->piece, 1);
    }
}

static void unmap_all(int index, int count, void *argument)
{
    struct job *job = argument;
    for (size_t i = 0; i < job->count; i++) {
        size_t place = job->shared ? i * (size_t)count + (size_t)index : i;
        char *base = job->shared ? job->shared : job->regions[index];
        if (munmap(base + place * job->piece, job->piece))
            failed("munmap");
    }
}

/* Address space that is set aside, so that fixed mappings hit nothing else. */
static char *reserve(size_t bytes)
{
    char *p = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        failed("mmap");
    return p;
}

static char *aligned(char *p)
{
    return (char *)(((uintptr_t)p + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
}

static void once(struct job *job, int threads, bool is_shared)
{
    size_t each = job->piece * job->count;
    size_t bytes = is_shared ? each * (size_t)threads : each;
    char *places[64];
    int place_count = is_shared ? 1 : threads;
    for (int i = 0; i < place_count; i++) {
        places[i] = reserve(bytes);
        job->regions[i] = aligned(places[i]);
    }
    job->shared = is_shared ? job->regions[0] : NULL;
    job->map_ns = team(threads, map_all, job);
    job->unmap_ns = team(threads, unmap_all, job);
    for (int i = 0; i < place_count; i++)
        munmap(places[i], bytes + HUGE_BYTES);
}

/* Time of one thread for one call: the time of all threads, divided by their calls. */
static void measure(struct job *job, int threads, bool is_shared, const char *kind)
{
    double map[MAX_ROUNDS], unmap[MAX_ROUNDS];
    size_t rounds = job->options->rounds;
    for (size_t round = 0; round < rounds; round++) {
        once(job, threads, is_shared);
        map[round] = (double)job->map_ns / (double)job->count;
        unmap[round] = (double)job->unmap_ns / (double)job->count;
    }
    char metric[64];
    const char *touched = job->is_touched ? "-touch" : "";
    snprintf(metric, sizeof metric, "%s-mmap%s-t%d", kind, touched, threads);
    figure(job->size, metric, median(map, rounds), "ns/call");
    snprintf(metric, sizeof metric, "%s-munmap%s-t%d", kind, touched, threads);
    figure(job->size, metric, median(unmap, rounds), "ns/call");
}

static void all_kinds(const struct options *o, const char *size, int threads)
{
    for (int is_touched = 0; is_touched < 2; is_touched++) {
        struct job small = {.options = o, .size = size, .piece = SMALL_BYTES,
                            .count = SMALL_COUNT, .is_touched = is_touched};
        measure(&small, threads, false, "small-own");
        measure(&small, threads, true, "small-shared");
        struct job large = {.options = o, .size = size, .piece = o->bytes, .count = 1,
                            .is_touched = is_touched};
        measure(&large, threads, false, "large-own");
    }
}

int main(int argc, char **argv)
{
    program_name = "mmapbench";
    struct options o = options(argc, argv, 16);
    for (size_t i = 0; i < o.size_count; i++) {
        only_thp(&o, o.sizes[i]);
        for (int threads = 1; threads <= o.threads; threads *= 2)
            all_kinds(&o, o.sizes[i], threads);
    }
    return 0;
}

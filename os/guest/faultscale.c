/* faultscale: how first touches scale over 1, 2, 4.. threads: in a region of each thread, and in
 * one region that all share, divided into neighbouring pieces of 64 KiB. */
#include "team.h"

enum { PIECE_BYTES = 64 << 10 };

struct job {
    size_t bytes;     /* that each thread touches */
    char *shared;     /* or NULL */
    char *own[64];
};

static void touch_own(int index, int count, void *argument)
{
    struct job *job = argument;
    (void)count;
    touch_pages(job->own[index], job->bytes, 1);
}

static void touch_shared(int index, int count, void *argument)
{
    struct job *job = argument;
    for (size_t i = 0; i < job->bytes / PIECE_BYTES; i++) {
        size_t piece = i * (size_t)count + (size_t)index;
        touch_pages(job->shared + piece * PIECE_BYTES, PIECE_BYTES, 1);
    }
}

static double once(struct job *job, const char *size, int threads, bool is_shared)
{
    uint64_t took;
    if (is_shared) {
        job->shared = map_region(job->bytes * (size_t)threads, size);
        took = team(threads, touch_shared, job);
        munmap(job->shared, job->bytes * (size_t)threads);
    } else {
        for (int i = 0; i < threads; i++)
            job->own[i] = map_region(job->bytes, size);
        took = team(threads, touch_own, job);
        for (int i = 0; i < threads; i++)
            munmap(job->own[i], job->bytes);
    }
    return (double)took / (double)(job->bytes / PAGE);
}

static void measure(const struct options *o, const char *size, int threads, bool is_shared)
{
    double values[MAX_ROUNDS];
    struct job job = {.bytes = o->bytes};
    for (size_t round = 0; round < o->rounds; round++)
        values[round] = once(&job, size, threads, is_shared);
    char metric[64];
    snprintf(metric, sizeof metric, "%s-t%d", is_shared ? "shared" : "own", threads);
    figure(size, metric, median(values, o->rounds), "ns/page");
}

int main(int argc, char **argv)
{
    program_name = "faultscale";
    struct options o = options(argc, argv, 32);
    for (size_t i = 0; i < o.size_count; i++) {
        only_thp(&o, o.sizes[i]);
        for (int threads = 1; threads <= o.threads; threads *= 2) {
            measure(&o, o.sizes[i], threads, false);
            measure(&o, o.sizes[i], threads, true);
        }
    }
    return 0;
}

/* forkbench: the cost of fork to the parent, and of the first write to each page afterwards, while
 * the child lives (the page is copied) and when it is gone (the page is used again). */
#include "common.h"

#include <sys/wait.h>

enum { FORK, FORK_WAIT, COPY, REUSE, METRICS };
static const char *const names[METRICS] = {"fork", "fork-exit-wait", "cow-copy", "cow-reuse"};

static pid_t fork_or_end(void)
{
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    return child;
}

static void wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status)
        end(1, "a child ended with status %#x.", status);
}

/* A child that lives until `gate` closes; *took is how long fork took in the parent. */
static pid_t living_child(int gate[2], uint64_t *took)
{
    if (pipe(gate))
        failed("pipe");
    fflush(stdout);
    uint64_t start = now_ns();
    pid_t child = fork_or_end();
    if (!child) {
        char byte;
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) != 0);
    }
    *took = now_ns() - start;
    close(gate[0]);
    return child;
}

static void once(size_t bytes, const char *size, uint64_t *took)
{
    char *region = map_region(bytes, size);
    touch_pages(region, bytes, 1);
    int gate[2];
    pid_t child = living_child(gate, &took[FORK]);
    uint64_t start = now_ns();
    touch_pages(region, bytes, 2);
    took[COPY] = now_ns() - start;
    close(gate[1]);
    wait_for(child);
    munmap(region, bytes);

    region = map_region(bytes, size);
    touch_pages(region, bytes, 1);
    start = now_ns();
    child = fork_or_end();
    if (!child)
        _exit(0);
    wait_for(child);
    took[FORK_WAIT] = now_ns() - start;
    start = now_ns();
    touch_pages(region, bytes, 3);
    took[REUSE] = now_ns() - start;
    munmap(region, bytes);
}

int main(int argc, char **argv)
{
    program_name = "forkbench";
    struct options o = options(argc, argv, 64);
    for (size_t i = 0; i < o.size_count; i++) {
        double values[METRICS][MAX_ROUNDS];
        only_thp(&o, o.sizes[i]);
        for (size_t round = 0; round < o.rounds; round++) {
            uint64_t took[METRICS];
            once(o.bytes, o.sizes[i], took);
            for (int metric = 0; metric < METRICS; metric++)
                values[metric][round] = (double)took[metric] / (double)(o.bytes / PAGE);
        }
        for (int metric = 0; metric < METRICS; metric++)
            figure(o.sizes[i], names[metric], median(values[metric], o.rounds), "ns/page");
    }
    return 0;
}

/* protbench: mprotect to read-only and back, in patterns that make few or many areas. */
#include "common.h"

enum { STEP_MANY = 2, CALLS_SLIDING = 1000 };

/* Protects every `stride`-th piece of `piece` bytes, and returns how many calls that took. */
static size_t protect(char *region, size_t bytes, size_t piece, size_t stride, int rights)
{
    size_t calls = 0;
    for (size_t at = 0; at + piece <= bytes; at += piece * stride, calls++)
        if (mprotect(region + at, piece, rights))
            failed("mprotect");
    return calls;
}

/* There and back; prints the cost of a call each way. */
static void pattern(const struct options *o, const char *size, const char *name, size_t piece,
                    size_t stride)
{
    double there[MAX_ROUNDS], back[MAX_ROUNDS];
    char *region = map_region(o->bytes, size);
    touch_pages(region, o->bytes, 1);
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t start = now_ns();
        size_t calls = protect(region, o->bytes, piece, stride, PROT_READ);
        there[round] = (double)(now_ns() - start) / (double)calls;
        start = now_ns();
        protect(region, o->bytes, piece, stride, PROT_READ | PROT_WRITE);
        back[round] = (double)(now_ns() - start) / (double)calls;
        touch_pages(region, o->bytes, 2);
    }
    munmap(region, o->bytes);
    char metric[64];
    snprintf(metric, sizeof metric, "%s-ro", name);
    figure(size, metric, median(there, o->rounds), "ns/call");
    snprintf(metric, sizeof metric, "%s-rw", name);
    figure(size, metric, median(back, o->rounds), "ns/call");
}

/* One read-only page that moves on through the region: a boundary moves with each call. */
static void sliding(const struct options *o, const char *size)
{
    double values[MAX_ROUNDS];
    char *region = map_region(o->bytes, size);
    touch_pages(region, o->bytes, 1);
    size_t calls = o->bytes / PAGE < CALLS_SLIDING ? o->bytes / PAGE : CALLS_SLIDING;
    for (size_t round = 0; round < o->rounds; round++) {
        uint64_t start = now_ns();
        for (size_t i = 0; i < calls; i++)
            if (mprotect(region + i * PAGE, PAGE, PROT_READ))
                failed("mprotect");
        values[round] = (double)(now_ns() - start) / (double)calls;
        if (mprotect(region, o->bytes, PROT_READ | PROT_WRITE))
            failed("mprotect");
    }
    munmap(region, o->bytes);
    figure(size, "growing-ro", median(values, o->rounds), "ns/call");
}

int main(int argc, char **argv)
{
    program_name = "protbench";
    struct options o = options(argc, argv, 16);
    for (size_t i = 0; i < o.size_count; i++) {
        const char *size = o.sizes[i];
        only_thp(&o, size);
        pattern(&o, size, "whole", o.bytes, 1);
        pattern(&o, size, "halves", o.bytes / 2, STEP_MANY);
        pattern(&o, size, "second-2M", HUGE_BYTES, STEP_MANY);
        pattern(&o, size, "second-64K", 64 * KIB, STEP_MANY);
        pattern(&o, size, "second-page", PAGE, STEP_MANY);
        sliding(&o, size);
    }
    return 0;
}

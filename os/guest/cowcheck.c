/* cowcheck: checks that memory keeps each process's own writes. A tree of processes writes and
 * verifies patterns in the same region through forks, partial writes, unmapping, moves, DONTFORK
 * and WIPEONFORK, for each folio size. Ends at the first wrong byte with a sentence. */
#include "common.h"

#include <sys/wait.h>

enum { REGION_BYTES = 4 << 20, LEVELS = 3, CHILDREN = 2 };

static const char *size_name = "asis";
static const char *scene = "none";

/* The value of byte `at` of the region after `writer` wrote it; the index of the page counts,
 * too. */
static char pattern(size_t at, unsigned writer)
{
    return (char)(at * 7 + at / PAGE * 13 + writer * 31 + 1);
}

static void write_span(char *region, size_t start, size_t end_at, unsigned writer)
{
    for (size_t at = start; at < end_at; at++)
        region[at] = pattern(at, writer);
}

static void verify_byte(const char *region, size_t at, char expected)
{
    if (region[at] != expected)
        end(1, "size %s, %s: byte %#zx is %#x and should be %#x.", size_name, scene, at,
            (unsigned char)region[at], (unsigned char)expected);
}

static void verify_span(const char *region, size_t start, size_t end_at, unsigned writer)
{
    for (size_t at = start; at < end_at; at++)
        verify_byte(region, at, pattern(at, writer));
}

static void verify_zero(const char *region, size_t start, size_t end_at)
{
    for (size_t at = start; at < end_at; at++)
        verify_byte(region, at, 0);
}

static pid_t fork_or_end(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    return child;
}

static void wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status)
        end(1, "size %s, %s: a child ended with status %#x.", size_name, scene, status);
}

/* Each process of a tree owns every n-th chunk of a chunk size that fits no folio. */
static void tree(char *region, unsigned self, unsigned parent, int level)
{
    const size_t chunk = 5000;
    for (size_t at = 0, i = 0; at < REGION_BYTES; at += chunk, i++) {
        size_t stop = at + chunk < REGION_BYTES ? at + chunk : REGION_BYTES;
        verify_span(region, at, stop, i % 3 == parent % 3 ? parent : 0);
        if (i % 3 == self % 3 || i % 3 == parent % 3)
            write_span(region, at, stop, i % 3 == self % 3 ? self : 0);
    }
    pid_t children[CHILDREN];
    for (unsigned i = 0; level && i < CHILDREN; i++) {
        children[i] = fork_or_end();
        if (!children[i]) {
            tree(region, self * CHILDREN + i + 1, self, level - 1);
            _exit(0);
        }
    }
    for (unsigned i = 0; level && i < CHILDREN; i++)
        wait_for(children[i]);
    for (size_t at = 0, i = 0; at < REGION_BYTES; at += chunk, i++) {
        size_t stop = at + chunk < REGION_BYTES ? at + chunk : REGION_BYTES;
        verify_span(region, at, stop, i % 3 == self % 3 ? self : 0);
    }
}

static void trees(char *region)
{
    scene = "tree of forks";
    write_span(region, 0, REGION_BYTES, 0);
    tree(region, 1, 0, LEVELS);
}

/* Parent and child write one byte each in alternate pages, at the same time. */
static void alternate(char *region)
{
    scene = "one byte in alternate pages";
    write_span(region, 0, REGION_BYTES, 1);
    pid_t child = fork_or_end();
    size_t first = child ? 0 : PAGE;
    unsigned self = child ? 2 : 3;
    for (size_t at = first + 17; at < REGION_BYTES; at += 2 * PAGE)
        region[at] = pattern(at, self);
    for (size_t at = 0; at < REGION_BYTES; at++) {
        bool mine = at % PAGE == 17 && (at / PAGE) % 2 == first / PAGE;
        verify_byte(region, at, pattern(at, mine ? self : 1));
    }
    if (!child)
        _exit(0);
    wait_for(child);
}

/* The child unmaps a piece, maps anew there, and drops another; the parent sees none of it. */
static void holes(char *region)
{
    scene = "holes in the child";
    write_span(region, 0, REGION_BYTES, 4);
    size_t hole = 3 * PAGE, hole_end = 700 * PAGE, drop = 800 * PAGE, drop_end = 901 * PAGE;
    pid_t child = fork_or_end();
    if (!child) {
        if (munmap(region + hole, hole_end - hole))
            failed("munmap");
        char *again = mmap(region + hole, hole_end - hole, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (again == MAP_FAILED || madvise(region + drop, drop_end - drop, MADV_DONTNEED))
            failed("mmap or madvise");
        verify_zero(region, hole, hole_end);
        verify_zero(region, drop, drop_end);
        verify_span(region, 0, hole, 4);
        verify_span(region, hole_end, drop, 4);
        verify_span(region, drop_end, REGION_BYTES, 4);
        write_span(region, hole, drop_end, 5);
        verify_span(region, hole, drop_end, 5);
        _exit(0);
    }
    verify_span(region, 0, REGION_BYTES, 4);
    wait_for(child);
    verify_span(region, 0, REGION_BYTES, 4);
}

/* The same memory at another address, in the parent after the fork, then in the child. */
static void moves(char *region)
{
    scene = "moves after fork";
    write_span(region, 0, REGION_BYTES, 6);
    for (int side = 0; side < 2; side++) {
        pid_t child = fork_or_end();
        if ((side == 0) != (child != 0)) {
            verify_span(region, 0, REGION_BYTES, 6);
        } else {
            size_t at = 5 * PAGE, bytes = 600 * PAGE;
            char *to = mmap(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *moved = mremap(region + at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            if (to == MAP_FAILED || moved != to)
                failed("mremap");
            verify_span(moved - at, at, at + bytes, 6);
            write_span(moved - at, at + 100, at + bytes / 2, 7);
            verify_span(moved - at, at + 100, at + bytes / 2, 7);
            verify_span(moved - at, at + bytes / 2, at + bytes, 6);
            write_span(moved - at, at, at + bytes, 6);
            if (mremap(moved, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region + at)
                != region + at)
                failed("mremap back");
            verify_span(region, 0, REGION_BYTES, 6);
        }
        if (!child)
            _exit(0);
        wait_for(child);
    }
}

/* Read-only and back between fork and write. */
static void protect(char *region)
{
    scene = "rights after fork";
    write_span(region, 0, REGION_BYTES, 8);
    pid_t child = fork_or_end();
    size_t at = 9 * PAGE, bytes = 555 * PAGE;
    if (mprotect(region + at, bytes, PROT_READ) || mprotect(region, REGION_BYTES, PROT_READ)
        || mprotect(region, REGION_BYTES, PROT_READ | PROT_WRITE))
        failed("mprotect");
    verify_span(region, 0, REGION_BYTES, 8);
    write_span(region, at, at + bytes, child ? 9 : 10);
    verify_span(region, 0, at, 8);
    verify_span(region, at, at + bytes, child ? 9 : 10);
    verify_span(region, at + bytes, REGION_BYTES, 8);
    if (!child)
        _exit(0);
    wait_for(child);
}

/* Whether `page` is mapped, without touching it. */
static bool is_mapped(char *page)
{
    unsigned char word;
    return mincore(page, PAGE, &word) == 0;
}

static void advice_for_forks(char *region)
{
    scene = "DONTFORK and WIPEONFORK";
    size_t a = 100 * PAGE, b = 333 * PAGE, c = 777 * PAGE;
    write_span(region, 0, REGION_BYTES, 11);
    if (madvise(region + a, b - a, MADV_DONTFORK) || madvise(region + b, c - b, MADV_WIPEONFORK))
        failed("madvise");
    pid_t child = fork_or_end();
    if (!child) {
        if (is_mapped(region + a) || is_mapped(region + b - PAGE))
            end(1, "size %s: the child has memory that DONTFORK keeps from it.", size_name);
        verify_zero(region, b, c);
        verify_span(region, 0, a, 11);
        verify_span(region, c, REGION_BYTES, 11);
        write_span(region, b, c, 12);
        _exit(0);
    }
    wait_for(child);
    verify_span(region, 0, REGION_BYTES, 11);
    if (madvise(region + a, b - a, MADV_DOFORK) || madvise(region + b, c - b, MADV_KEEPONFORK))
        failed("madvise");
    child = fork_or_end();
    verify_span(region, 0, REGION_BYTES, 11);
    if (!child)
        _exit(0);
    wait_for(child);
}

/* The parent unmaps all while the child, then alone, goes on. */
static void orphaned(char *region)
{
    scene = "memory that the other process gave up";
    write_span(region, 0, REGION_BYTES, 13);
    int gate[2];
    if (pipe(gate))
        failed("pipe");
    pid_t child = fork_or_end();
    if (!child) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1))
            _exit(1);
        verify_span(region, 0, REGION_BYTES, 13);
        write_span(region, PAGE + 1, REGION_BYTES - 1, 14);
        verify_span(region, PAGE + 1, REGION_BYTES - 1, 14);
        verify_span(region, 0, PAGE + 1, 13);
        _exit(0);
    }
    if (madvise(region, REGION_BYTES, MADV_DONTNEED))
        failed("madvise");
    close(gate[1]);
    close(gate[0]);
    wait_for(child);
    verify_zero(region, 0, REGION_BYTES);
}

/* Shared memory stays shared through forks, whichever process writes. */
static void shared(void)
{
    scene = "shared memory";
    char *region = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                        0);
    if (region == MAP_FAILED)
        failed("mmap");
    write_span(region, 0, REGION_BYTES / 2, 15);
    pid_t child = fork_or_end();
    if (!child) {
        verify_span(region, 0, REGION_BYTES / 2, 15);
        write_span(region, REGION_BYTES / 4, REGION_BYTES, 16);
        _exit(0);
    }
    wait_for(child);
    verify_span(region, 0, REGION_BYTES / 4, 15);
    verify_span(region, REGION_BYTES / 4, REGION_BYTES, 16);
    munmap(region, REGION_BYTES);
}

int main(int argc, char **argv)
{
    static void (*const scenes[])(char *) = {
        trees, alternate, holes, moves, protect, advice_for_forks, orphaned};
    program_name = "cowcheck";
    struct options o = options(argc, argv, 4);
    size_t count = sizeof scenes / sizeof *scenes;
    for (size_t i = 0; i < o.size_count; i++) {
        size_name = o.sizes[i];
        only_thp(&o, size_name);
        for (size_t j = 0; j < count; j++) {
            char *region = map_region(REGION_BYTES, size_name);
            scenes[j](region);
            if (munmap(region, REGION_BYTES))
                failed("munmap");
            printf("ok %s, size %s\n", scene, size_name);
        }
        shared();
        printf("ok %s, size %s\n", scene, size_name);
    }
    printf("cowcheck: %zu ok, 0 failed\n", (count + 1) * o.size_count);
    return 0;
}

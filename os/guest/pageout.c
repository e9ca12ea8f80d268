/* pageout: the cost of writing memory to swap (MADV_PAGEOUT) and of bringing it back by touching
 * it, by folio size, and a check that each byte comes back.
 *
 *     pageout [--device PATH] [--kind random|text|same|zero] [--region MIB] and all of `options`
 *
 * The device becomes a swap area, and its data is lost. Without --device only an empty one is
 * taken. `out-shm` and `in-shm` are of shared memory. `device-write` and `device-read` are a plain transfer of as many bytes in large calls;
 * `copy-out` and `copy-in` are the copies in them alone, which an emulator counts in another way
 * than a CPU does: a reporter subtracts them. Touches read: a page is in when it can be read.
 */
#include "swap.h"

#include <sys/wait.h>

/* Less of a region that went out would be another measurement. */
#define LEAST_GONE 95.0

enum kind { RANDOM, TEXT, SAME, ZERO, KINDS };
static const char *const kinds[KINDS] = {"random", "text", "same", "zero"};

/* The present measurement. */
struct scene {
    size_t bytes;
    const char *size;
    enum kind kind;
    bool shared; /* memory, with other processes (tmpfs), and not private */
};

static const char vocabulary[32][9] = {
    "the ",   "of ",    "and ",   "to ",    "page ",  "folio ", "in ",    "is ",
    "memory ", "that ", "for ",   "it ",    "as ",    "was ",   "with ",  "swap ",
    "be ",    "by ",    "on ",    "not ",   "he ",    "table ", "this ",  "are ",
    "or ",    "his ",   "from ",  "at ",    "which ", "kernel ", ".\n",   ", ",
};

/* Ends the program, as there is no kind of this name. */
static enum kind kind_of(const char *word)
{
    for (int kind = 0; word && kind < KINDS; kind++)
        if (!strcmp(word, kinds[kind]))
            return (enum kind)kind;
    if (word)
        end(2, "`%s` is no kind: name random, text, same or zero.", word);
    return RANDOM;
}

/* Words of different lengths, as they are in text. */
static void make_text(char *page, uint64_t state)
{
    char padded[PAGE + sizeof *vocabulary];
    for (size_t at = 0; at < PAGE;) {
        uint64_t bits = next_random(&state);
        for (int word = 0; word < 12 && at < PAGE; word++, bits >>= 5) {
            const char *from = vocabulary[bits & 31];
            memcpy(padded + at, from, sizeof *vocabulary);
            at += strlen(from);
        }
    }
    memcpy(page, padded, PAGE);
}

/* The content of page `number`, always the same for the same `kind` and `seed`. */
static void make_page(char *page, enum kind kind, uint64_t seed, size_t number)
{
    uint64_t state = (seed << 32 | number) + 1;
    uint64_t word = next_random(&state);
    if (kind == ZERO)
        memset(page, 0, PAGE);
    else if (kind == TEXT)
        make_text(page, state);
    else
        for (size_t at = 0; at < PAGE; at += sizeof word) {
            memcpy(page + at, &word, sizeof word);
            if (kind == RANDOM)
                word = next_random(&state);
        }
}

static void fill(char *region, const struct scene *s, uint64_t seed)
{
    for (size_t at = 0; at < s->bytes; at += PAGE)
        make_page(region + at, s->kind, seed, at / PAGE);
}

/* Ends the program if any byte differs from `fill`'s; `when` names the step before. */
static void verify(const char *region, const struct scene *s, uint64_t seed, const char *when)
{
    static char expected[PAGE];
    for (size_t at = 0; at < s->bytes; at += PAGE) {
        make_page(expected, s->kind, seed, at / PAGE);
        if (memcmp(region + at, expected, PAGE))
            end(1, "size=%s, %s: page %zu has other content.", s->size, when, at / PAGE);
    }
}

/* Allows folios of shared memory of `size`, and no others, where madvise asks and the kernel has a
 * setting of their own for them. */
static void only_shared_thp(const struct options *o, const char *size)
{
    char path[128];
    for (size_t kib = 8; o->set_thp && size_kib(size) && kib <= 2048; kib *= 2) {
        snprintf(path, sizeof path, THP_DIR "/hugepages-%zukB/shmem_enabled", kib);
        put_word(path, kib == size_kib(size) ? "advise" : "never");
    }
}

/* Shared memory in the place of a private region, which is aligned. */
static void make_shared(char *region, const struct scene *s)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(region, s->bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != region)
        failed("mmap");
    if (size_kib(s->size))
        madvise(region, s->bytes, size_kib(s->size) > 4 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static char *filled(const struct scene *s, uint64_t seed)
{
    char *region = map_region(s->bytes, s->size);
    if (s->shared)
        make_shared(region, s);
    fill(region, s, seed);
    return region;
}

static void unmap(char *region, const struct scene *s)
{
    if (munmap(region, s->bytes))
        failed("munmap");
}

static uint64_t page_out(char *region, size_t bytes)
{
    uint64_t start = now_ns();
    if (madvise(region, bytes, MADV_PAGEOUT))
        failed("MADV_PAGEOUT");
    return now_ns() - start;
}

static uint64_t touch_in(const char *region, size_t bytes)
{
    uint64_t start = now_ns();
    for (size_t at = 0; at < bytes; at += PAGE)
        (void)((const volatile char *)region)[at];
    return now_ns() - start;
}

/* Counts pages that are in memory. */
static size_t resident(char *region, size_t bytes)
{
    static unsigned char pages[CHUNK / PAGE];
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t part = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (mincore(region + at, part, pages))
            failed("mincore");
        for (size_t i = 0; i < part / PAGE; i++)
            count += pages[i] & 1;
    }
    return count;
}

/* The percent of a range's pages that are not in memory. */
static double gone(char *region, size_t bytes)
{
    size_t pages = bytes / PAGE;
    return 100.0 * (double)(pages - resident(region, bytes)) / (double)pages;
}

/* Prints a figure, with the kind of data in its name if it is not the usual one. */
static void tell(const struct scene *s, const char *metric, double value, const char *unit)
{
    char name[64];
    const char *kind = s->kind == RANDOM ? "" : kinds[s->kind], *of = s->shared ? "-shm" : "";
    snprintf(name, sizeof name, "%s%s%s%s", metric, of, *kind ? "-" : "", kind);
    figure(s->size, name, value, unit);
}

static void tell_per_page(const struct scene *s, const char *metric, uint64_t ns, size_t bytes)
{
    tell(s, metric, (double)ns / (double)(bytes / PAGE), "ns/page");
}

/* All of the region out and in again. */
static void out_and_in(const struct scene *s, size_t rounds)
{
    double out[MAX_ROUNDS], in[MAX_ROUNDS], least = 100;
    double pages = (double)(s->bytes / PAGE);
    for (size_t round = 0; round < rounds; round++) {
        char *region = filled(s, round);
        out[round] = (double)page_out(region, s->bytes) / pages;
        double now = gone(region, s->bytes);
        least = now < least ? now : least;
        in[round] = (double)touch_in(region, s->bytes) / pages;
        verify(region, s, round, "out and in");
        unmap(region, s);
    }
    tell(s, "out", median(out, rounds), "ns/page");
    tell(s, "in", median(in, rounds), "ns/page");
    tell(s, "gone", least, "percent");
    if (least < LEAST_GONE)
        end(1, "size=%s: only %.1f percent went out.", s->size, least);
}

/* The second half of each folio out. */
static void part_out(const struct scene *s)
{
    size_t folio = size_kib(s->size) * KIB, half = folio / 2;
    if (half < PAGE)
        return;
    char *region = filled(s, 1);
    uint64_t took = 0;
    double part = 0;
    for (size_t at = half; at < s->bytes; at += folio)
        took += page_out(region + at, half);
    for (size_t at = half; at < s->bytes; at += folio)
        part += gone(region + at, half) / (double)(s->bytes / folio);
    tell_per_page(s, "out-part", took, s->bytes / 2);
    tell(s, "gone-part", part, "percent");
    verify(region, s, 1, "out in part");
    unmap(region, s);
}

/* In a child, once the gate opens: checks the parent's data, then writes its own, which goes out
 * and comes back as well. */
__attribute__((noreturn)) static void child_of(char *region, const struct scene *s, int gate[2])
{
    char byte;
    close(gate[1]);
    if (read(gate[0], &byte, 1))
        _exit(1);
    verify(region, s, 1, "in the child");
    fill(region, s, 2);
    page_out(region, s->bytes);
    verify(region, s, 2, "out and in by the child");
    _exit(0);
}

static pid_t fork_child(char *region, const struct scene *s, int gate[2])
{
    if (pipe(gate))
        failed("pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child)
        child_of(region, s, gate);
    close(gate[0]);
    return child;
}

/* Opens the gate, waits for the child, and looks whether the parent still has its own data. */
static void end_child(char *region, const struct scene *s, pid_t child, int gate, const char *when)
{
    int status;
    close(gate);
    if (waitpid(child, &status, 0) != child || status)
        end(1, "size=%s, %s: the child ended with status %#x.", s->size, when, status);
    verify(region, s, 1, when);
    unmap(region, s);
}

/* Pages that two processes have: shared when they go out, and shared while they are out. */
static void shared(const struct scene *s)
{
    int gate[2];
    char *region = filled(s, 1);
    pid_t child = fork_child(region, s, gate);
    tell_per_page(s, "out-shared", page_out(region, s->bytes), s->bytes);
    tell(s, "gone-shared", gone(region, s->bytes), "percent");
    end_child(region, s, child, gate[1], "out after fork");

    region = filled(s, 1);
    page_out(region, s->bytes);
    uint64_t start = now_ns();
    child = fork_child(region, s, gate);
    tell_per_page(s, "fork-out", now_ns() - start, s->bytes);
    tell_per_page(s, "in-shared", touch_in(region, s->bytes), s->bytes);
    end_child(region, s, child, gate[1], "fork after out");
}

/* The area is taken away while it holds the region. */
static void off(const struct scene *s)
{
    char *region = filled(s, 1);
    page_out(region, s->bytes);
    uint64_t start = now_ns();
    swap_off();
    tell_per_page(s, "swapoff", now_ns() - start, s->bytes);
    if (gone(region, s->bytes) > 0)
        end(1, "size=%s: pages are missing after swapoff.", s->size);
    verify(region, s, 1, "swapoff");
    unmap(region, s);
    swap_on();
}

/* Nanoseconds per call for many transfers of `count` bytes, each at the start of a page. */
static double calls(int fd, char *chunk, size_t count, bool writes)
{
    uint64_t start = now_ns();
    for (size_t at = 0; at < CHUNK; at += PAGE)
        if (transfer_at(fd, chunk + at, count, at, writes) != (ssize_t)count)
            failed(swap_area.path);
    return (double)(now_ns() - start) / (double)(CHUNK / PAGE);
}

/* The cost of the kernel's copy of a page to (or from) the device: a transfer of a page costs more
 * than one of a sector by seven eighths of it, and all else is the same. */
static void tell_copy(int fd, const struct scene *s, char *chunk, bool writes)
{
    if (transfer_at(fd, chunk, SECTOR, 0, writes) != (ssize_t)SECTOR || is_zram())
        return; /* Compressed memory has no smaller unit than a page, or copies it twice. */
    double sector = calls(fd, chunk, SECTOR, writes), page = calls(fd, chunk, PAGE, writes);
    double part = (double)(PAGE - SECTOR) / (double)PAGE;
    tell(s, writes ? "copy-out" : "copy-in", (page - sector) / part, "ns/page");
}

/* Writes the whole area, then measures plain transfers of the data and the copies in them. */
static void prepare(int fd, struct scene s)
{
    char *chunk = map_region(CHUNK, "asis");
    size_t bytes = s.bytes;
    s.bytes = CHUNK;
    fill(chunk, &s, 1);
    transfer(fd, chunk, swap_area.bytes, true);
    tell_per_page(&s, "device-write", transfer(fd, chunk, bytes, true), bytes);
    tell_per_page(&s, "device-read", transfer(fd, chunk, bytes, false), bytes);
    tell_copy(fd, &s, chunk, true);
    tell_copy(fd, &s, chunk, false);
    write_header(fd, chunk);
    if (close(fd) || munmap(chunk, CHUNK))
        failed("close or munmap");
}

int main(int argc, char **argv)
{
    program_name = "pageout";
    const char *device = taken(&argc, argv, "--device"), *kind = taken(&argc, argv, "--kind");
    const char *region = taken(&argc, argv, "--region");
    struct options o = options(argc, argv, 64);
    if (region)
        o.bytes = (size_t)(number(region, 2, 1 << 14) & ~1L) * MIB;
    struct scene s = {.bytes = o.bytes, .size = "any", .kind = kind_of(kind)};
    /* A child has a copy out while the parent has all of its own, and runs of slots need room. */
    int fd = open_swap(device, 2 * o.bytes + MAX_PAGE, 3 * o.bytes + MAX_PAGE);
    prepare(fd, s);
    swap_on();
    for (size_t i = 0; i < o.size_count; i++) {
        s.size = o.sizes[i];
        only_thp(&o, s.size);
        only_shared_thp(&o, s.size);
        out_and_in(&s, o.rounds);
        s.shared = true;
        out_and_in(&s, o.rounds);
        s.shared = false;
        part_out(&s);
        shared(&s);
        off(&s);
    }
    swap_off();
    return 0;
}

/* Shared by the programs of os/guest/: errors, options, the clock, THP settings, regions, figures.
 *
 * Each program is one static file that runs unchanged on Linux and on Quire's kernel. A figure is
 * one line of five words, which `cargo xtask compare` reads:
 *
 *     PROGRAM size=64K METRIC VALUE UNIT
 *
 * Exit status: 0 good, 1 a check or a system call failed, 2 wrong arguments, 3 the measured feature
 * is not supported here.
 */
#ifndef COMMON_H
#define COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define HUGE_BYTES (2 * MIB)
#define MAX_ROUNDS 99
#define MAX_SIZES 16
#define UNSUPPORTED 3
#define THP_DIR "/sys/kernel/mm/transparent_hugepage"

/* The name that begins every line of this program; main sets it first. */
static const char *program_name = "guest";

/* Ends the program with one sentence and `status`. */
__attribute__((noreturn, format(printf, 2, 3))) static inline void end(
    int status, const char *format, ...)
{
    va_list words;
    va_start(words, format);
    fflush(stdout);
    fprintf(stderr, "%s: ", program_name);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    exit(status);
}

/* Ends the program because system call `what` failed. */
__attribute__((noreturn)) static inline void failed(const char *what)
{
    end(1, "%s failed: %s.", what, strerror(errno));
}

/* A whole number from `least` to `most`, or the end of the program. */
static inline long number(const char *word, long least, long most)
{
    char *rest;
    errno = 0;
    long value = strtol(word, &rest, 10);
    if (errno || rest == word || *rest || value < least || value > most)
        end(2, "`%s` is not a number from %ld to %ld.", word, least, most);
    return value;
}

/* Nanoseconds on the monotonic clock. */
static inline uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The next number of a simple sequence (xorshift64*); *state is the seed and never 0. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1Du;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median; sorts the values. */
static inline double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    size_t half = count / 2;
    return count % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/* Prints one figure. */
static inline void figure(const char *size, const char *metric, double value, const char *unit)
{
    printf("%s size=%s %s %.1f %s\n", program_name, size, metric, value, unit);
    fflush(stdout);
}

/* The options of all measuring programs: [-t] [-m MIB] [-n ROUNDS] [-j THREADS] [SIZE...]. */
struct options {
    size_t bytes;                /* of the region that is measured, a multiple of 2 MiB */
    size_t rounds;               /* medians are over this many */
    int threads;                 /* the most that run at once */
    bool set_thp;                /* may change the machine's THP settings */
    const char *sizes[MAX_SIZES]; /* words like 4K, 64K, 2M, asis */
    size_t size_count;
};

/* Takes the words `--NAME VALUE` out of the arguments; NULL if they are not there. */
static inline const char *taken(int *argc, char **argv, const char *name)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], name))
            continue;
        if (i + 1 == *argc)
            end(2, "%s needs a value.", name);
        const char *value = argv[i + 1];
        *argc -= 2;
        memmove(argv + i, argv + i + 2, (size_t)(*argc - i + 1) * sizeof *argv);
        return value;
    }
    return NULL;
}

/* The KiB of a word like 64K or 2M; 0 for "asis". */
static inline size_t size_kib(const char *word)
{
    if (!strcmp(word, "asis"))
        return 0;
    char *rest;
    unsigned long value = strtoul(word, &rest, 10);
    if (rest != word && !strcmp(rest, "M"))
        value *= 1024;
    else if (rest == word || strcmp(rest, "K"))
        value = 0;
    if (value < 4 || value > 2048 || (value & (value - 1)))
        end(2, "`%s` is no size: name a power of two from 4K to 2M, or `asis`.", word);
    return value;
}

/* Reads the arguments. Sizes other than 4K and asis need -t, as they are the whole machine's. */
static inline struct options options(int argc, char **argv, size_t mib)
{
    struct options o = {.bytes = mib * MIB, .rounds = 5, .threads = 2};
    opterr = 0;
    for (int c; (c = getopt(argc, argv, "+tm:n:j:")) != -1;) {
        switch (c) {
        case 't': o.set_thp = true; break;
        case 'm': o.bytes = (size_t)(number(optarg, 2, 1 << 14) & ~1L) * MIB; break;
        case 'n': o.rounds = (size_t)number(optarg, 1, MAX_ROUNDS); break;
        case 'j': o.threads = (int)number(optarg, 1, 64); break;
        default: end(2, "usage: %s [-t] [-m MIB] [-n ROUNDS] [-j THREADS] [SIZE...]; -t may set "
                        "the machine's THP sizes.", program_name);
        }
    }
    for (; optind < argc; optind++) {
        if (o.size_count == MAX_SIZES)
            end(2, "more than %d sizes.", MAX_SIZES);
        if (size_kib(argv[optind]) > 4 && !o.set_thp)
            end(2, "size %s needs -t, which sets THP for the whole machine.", argv[optind]);
        o.sizes[o.size_count++] = argv[optind];
    }
    static const char *const usual[] = {"4K", "64K", "1M", "2M"};
    if (!o.size_count && o.set_thp)
        for (size_t i = 0; i < 4; i++)
            o.sizes[o.size_count++] = usual[i];
    else if (!o.size_count)
        o.sizes[o.size_count++] = "asis";
    return o;
}

/* Writes a word to a file of /sys; false leaves errno. */
static inline bool put_word(const char *path, const char *word)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t length = strlen(word);
    bool good = write(fd, word, length) == (ssize_t)length;
    int error = errno;
    close(fd);
    errno = error;
    return good;
}

/* Sets the use of folios of `kib` KiB: always, inherit, madvise, never. */
static inline bool set_thp(size_t kib, const char *word)
{
    char path[128];
    snprintf(path, sizeof path, THP_DIR "/hugepages-%zukB/enabled", kib);
    return put_word(path, word);
}

/* With -t: only folios of `size`, and only where madvise asks. */
static inline void only_thp(const struct options *o, const char *size)
{
    size_t wanted = size_kib(size);
    if (!o->set_thp || !wanted)
        return;
    for (size_t kib = 8; kib <= 2048; kib *= 2)
        if (kib != wanted)
            set_thp(kib, "never"); /* A size that is not there needs no setting. */
    if (wanted > 4 && !set_thp(wanted, "madvise"))
        failed("setting THP");
}

/* A private anonymous region that begins at a multiple of 2 MiB, advised as `size` needs. */
static inline char *map_region(size_t bytes, const char *size)
{
    size_t whole = bytes + HUGE_BYTES;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        failed("mmap");
    char *region = (char *)(((uintptr_t)start + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
    size_t before = (size_t)(region - start), after = whole - before - bytes;
    if ((before && munmap(start, before)) || (after && munmap(region + bytes, after)))
        failed("munmap");
    size_t kib = size_kib(size);
    /* A kernel without THP answers EINVAL, and is right. */
    if (kib)
        madvise(region, bytes, kib > 4 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return region;
}

/* Writes one byte to each page. */
static inline void touch_pages(char *region, size_t bytes, char value)
{
    for (size_t at = 0; at < bytes; at += PAGE)
        ((volatile char *)region)[at] = value;
}

#endif

/* reservebench: reserved folios (hugetlb): mappings, first touches, touches of folios that are
 * there, copies after a fork, unmapping. Sets the pools, and empties them at the end. */
#include "common.h"

#include <sys/syscall.h>
#include <sys/wait.h>

enum { SHIFT_2M = 21, SHIFT_1G = 30, SIZE_AT = 26, CALLS = 200 };

static char pool[96];

static long pool_has(void)
{
    char text[32] = "";
    int fd = open(pool, O_RDONLY | O_CLOEXEC);
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    return count <= 0 ? 0 : atol(text);
}

/* Sets the size of the pool; whether it has that now. */
static bool resize(size_t folios)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", folios);
    return put_word(pool, text) && pool_has() == (long)folios;
}

static char *map(size_t bytes, int shift, int kind, int fd)
{
    int flags = kind | (fd < 0 ? MAP_ANONYMOUS | MAP_HUGETLB | shift << SIZE_AT : 0);
    char *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (region == MAP_FAILED)
        failed("mmap");
    return region;
}

/* Touches each folio; the cost of one. */
static double touch(char *region, size_t folios, int shift)
{
    uint64_t start = now_ns();
    for (size_t at = 0; at < folios; at++)
        *(volatile char *)(region + (at << shift)) = 1;
    return (double)(now_ns() - start) / (double)folios;
}

static double unmap(char *region, size_t folios, int shift)
{
    uint64_t start = now_ns();
    if (munmap(region, folios << shift))
        failed("munmap");
    return (double)(now_ns() - start) / (double)folios;
}

/* A mapping of all folios that is not touched, and its end. */
static double empty_map(size_t folios, int shift)
{
    uint64_t start = now_ns();
    for (int i = 0; i < CALLS; i++)
        munmap(map(folios << shift, shift, MAP_PRIVATE, -1), folios << shift);
    return (double)(now_ns() - start) / CALLS;
}

/* A fork with a child that ends at once. */
static double fork_and_exit(size_t folios)
{
    uint64_t start = now_ns();
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child < 0 || waitpid(child, NULL, 0) != child)
        failed("fork");
    return (double)(now_ns() - start) / (double)folios;
}

static void rows(const struct options *o, const char *size, int shift, size_t folios)
{
    double first[MAX_ROUNDS], there[MAX_ROUNDS], end_of[MAX_ROUNDS], pairs[MAX_ROUNDS],
        forks[MAX_ROUNDS];
    snprintf(pool, sizeof pool, "/sys/kernel/mm/hugepages/hugepages-%zukB/nr_hugepages",
             ((size_t)1 << shift) / KIB);
    if (!resize(folios)) {
        resize(0);
        return;
    }
    for (size_t round = 0; round < o->rounds; round++) {
        int fd = (int)syscall(SYS_memfd_create, "it", 4u | (unsigned)shift << SIZE_AT);
        if (fd < 0 || ftruncate(fd, (off_t)(folios << shift)))
            failed("memfd_create");
        pairs[round] = empty_map(folios, shift);
        char *one = map(folios << shift, shift, MAP_SHARED, fd);
        char *other = map(folios << shift, shift, MAP_SHARED, fd);
        first[round] = touch(one, folios, shift);
        there[round] = touch(other, folios, shift);
        end_of[round] = unmap(other, folios, shift);
        unmap(one, folios, shift);
        close(fd);
        char *own = map(folios << shift, shift, MAP_PRIVATE, -1);
        touch(own, folios, shift);
        forks[round] = fork_and_exit(folios);
        unmap(own, folios, shift);
    }
    resize(0);
    figure(size, "reserved-mmap+munmap", median(pairs, o->rounds), "ns/call");
    figure(size, "reserved-first-touch", median(first, o->rounds), "ns/folio");
    figure(size, "reserved-touch-there", median(there, o->rounds), "ns/folio");
    figure(size, "reserved-munmap", median(end_of, o->rounds), "ns/folio");
    figure(size, "reserved-fork+exit", median(forks, o->rounds), "ns/folio");
}

int main(int argc, char **argv)
{
    program_name = "reservebench";
    struct options o = options(argc, argv, 64);
    size_t folios = o.bytes >> SHIFT_2M;
    rows(&o, "2M", SHIFT_2M, folios ? folios : 1);
    rows(&o, "1G", SHIFT_1G, 1);
    return 0;
}

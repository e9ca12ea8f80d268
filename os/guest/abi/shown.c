/* The kernel's counts of pages of files, and the return of their memory. */
#include "abi.h"

static const int RW = PROT_READ | PROT_WRITE;

/* The value in KiB that smaps has for the area at `start`; -1 if it has none. */
static long smaps_of(const void *start, const char *field)
{
    char line[512], wanted[32];
    bool here = false;
    long value = -1;
    size_t length = strlen(field);
    FILE *f = fopen("/proc/self/smaps", "r");
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)start);
    while (f && value < 0 && fgets(line, sizeof line, f)) {
        char *dash = strchr(line, '-');
        if (dash && strspn(line, "0123456789abcdef") == (size_t)(dash - line))
            here = !strncmp(line, wanted, strlen(wanted));
        else if (here && !strncmp(line, field, length) && line[length] == ':')
            value = atol(line + length + 1);
    }
    if (f)
        fclose(f);
    return value;
}

/* The words of pagemap for `count` pages; false if they cannot be read. */
static bool pagemap_of(const void *start, size_t count, uint64_t *words)
{
    int fd = open("/proc/self/pagemap", O_RDONLY);
    off_t at = (off_t)((uintptr_t)start / PAGE * 8);
    bool good = fd >= 0 && pread(fd, words, 8 * count, at) == (ssize_t)(8 * count);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool is_present(uint64_t word) { return word >> 63; }
static bool is_file(uint64_t word) { return word >> 61 & 1; }

/* The number of pages that a write to one page of shared memory maps, in an aligned block of 64 KiB;
 * with `advised`, the area is advised to be huge. */
static int pages_at_once(bool advised)
{
    enum { COUNT = 16 };
    uint64_t words[COUNT];
    char *p = mmap(NULL, 2 * COUNT * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int found = 0;
    if (p == MAP_FAILED || (advised && madvise(p, 2 * COUNT * PAGE, MADV_HUGEPAGE)))
        return -1;
    char *block = p + (-(uintptr_t)p & (COUNT * PAGE - 1));
    block[5 * PAGE] = 1;
    if (!pagemap_of(block, COUNT, words))
        return -1;
    for (int i = 0; i < COUNT; i++)
        found += is_present(words[i]);
    munmap(p, 2 * COUNT * PAGE);
    return found;
}

/* Each size of shared memory has a setting, which has an effect. */
static const char *sizes_of_shared_memory(void)
{
    static const char path[] = THP_DIR "/hugepages-64kB/shmem_enabled";
    char all[128] = "", old[32] = "";
    int fd = open(path, O_RDWR);
    if (fd < 0)
        return NULL; /* Another user's machine, or a kernel without such sizes. */
    CHECK(read(fd, all, sizeof all - 1) > 0 && sscanf(strchr(all, '['), "[%31[^]]", old) == 1);
    CHECK(put_word(path, "never") && pages_at_once(false) == 1 && pages_at_once(true) == 1);
    CHECK(put_word(path, "always") && pages_at_once(false) == 16 && pages_at_once(true) == 16);
    CHECK(put_word(path, "advise") && pages_at_once(false) == 1 && pages_at_once(true) == 16);
    FAILS(EINVAL, put_word(path, "madvise") ? 0 : -1);
    CHECK(put_word(path, old));
    return NULL;
}

/* A memfd of four pages, all written. */
static int full_memfd(void)
{
    static char bytes[4 * PAGE];
    memset(bytes, 'x', sizeof bytes);
    int fd = (int)syscall(SYS_memfd_create, "shown", 0);
    return fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes ? fd : -1;
}

static const char *smaps_shared(void)
{
    int fd = full_memfd(), ready[2], go[2], status;
    char byte, *p = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED && smaps_of(p, "Rss") == 0);
    memset(p, 'y', 4 * PAGE);
    CHECK(smaps_of(p, "Rss") == 16 && smaps_of(p, "Pss") == 16);
    CHECK(smaps_of(p, "Private_Dirty") == 16 && smaps_of(p, "Shared_Dirty") == 0);
    CHECK(smaps_of(p, "Anonymous") == 0 && smaps_of(p, "AnonHugePages") == 0);
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < 4; i++)
            (void)*(volatile char *)(p + i * PAGE);
        _exit(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1 ? 0 : 1);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(smaps_of(p, "Rss") == 16 && smaps_of(p, "Pss") == 8);
    CHECK(smaps_of(p, "Shared_Dirty") == 16 && smaps_of(p, "Private_Dirty") == 0);
    CHECK(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(smaps_of(p, "Pss") == 16 && smaps_of(p, "Private_Dirty") == 16);
    CHECK(munmap(p, 4 * PAGE) == 0 && smaps_of(p, "Rss") == -1);
    return NULL;
}

/* Of a private map, the copies are the program's own; the rest is the file's. */
static const char *smaps_private(void)
{
    int fd = full_memfd();
    char *p = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE, fd, 0);
    uint64_t words[4];
    CHECK(p != MAP_FAILED);
    for (int i = 0; i < 4; i++)
        (void)*(volatile char *)(p + i * PAGE);
    CHECK(smaps_of(p, "Rss") == 16 && smaps_of(p, "Anonymous") == 0);
    p[PAGE] = 'c';
    CHECK(smaps_of(p, "Rss") == 16 && smaps_of(p, "Anonymous") == 4);
    CHECK(pagemap_of(p, 4, words));
    for (int i = 0; i < 4; i++)
        CHECK(is_present(words[i]) && is_file(words[i]) == (i != 1));
    return NULL;
}

static const char *pagemap_of_files(void)
{
    int fd = full_memfd();
    char *p = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 0), *own = pages(1);
    uint64_t words[4];
    CHECK(p != MAP_FAILED && own != MAP_FAILED && (own[0] = 1));
    for (int i = 0; i < 4; i++)
        CHECK(p[i * PAGE] == 'x');
    CHECK(pagemap_of(p, 4, words));
    for (int i = 0; i < 4; i++)
        CHECK(is_present(words[i]) && is_file(words[i]));
    CHECK(pagemap_of(own, 1, words) && is_present(words[0]) && !is_file(words[0]));
    CHECK(ftruncate(fd, PAGE) == 0 && pagemap_of(p, 4, words));
    CHECK(is_present(words[0]) && !is_present(words[1]) && !is_present(words[3]));
    return NULL;
}

static bool has_line(const void *start, const char *end_of_line)
{
    char line[512], wanted[32];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)start);
    while (f && !found && fgets(line, sizeof line, f)) {
        size_t length = strlen(line), rest = strlen(end_of_line);
        found = !strncmp(line, wanted, strlen(wanted)) && length > rest &&
                !strcmp(line + length - rest, end_of_line);
    }
    if (f)
        fclose(f);
    return found;
}

static const char *maps_names(void)
{
    int fd = full_memfd();
    char *p = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED && has_line(p, " /memfd:shown (deleted)\n"));
    CHECK(make_file("named", "x") && (fd = open("named", O_RDWR)) >= 0);
    CHECK((p = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
    CHECK(close(fd) == 0 && has_line(p, "/named\n"));
    CHECK(unlink("named") == 0 && has_line(p, "/named (deleted)\n"));
    return NULL;
}

enum { BIG = 16 * 1024 * 1024, TIMES = 64 };

/* Writes `bytes` bytes; false if that fails. */
static bool fill(int fd, size_t bytes)
{
    static char piece[64 * 1024];
    for (size_t done = 0; done < bytes; done += sizeof piece)
        if (write(fd, piece, sizeof piece) != sizeof piece)
            return false;
    return true;
}

/* More in all than the machine has: closed, truncated and unmapped pages are free again. */
static const char *memory_comes_back(void)
{
    for (int i = 0; i < TIMES; i++) {
        int fd = (int)syscall(SYS_memfd_create, "big", 0);
        if (i % 3 == 1) {
            CHECK(close(fd) == 0 && (fd = open("big", O_RDWR | O_CREAT, 0600)) >= 0);
            CHECK(unlink("big") == 0);
        }
        CHECK(fd >= 0 && fill(fd, BIG));
        char *p = mmap(NULL, BIG, RW, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED && (p[BIG / 2] = 1));
        if (i % 4 == 3)
            CHECK(ftruncate(fd, 0) == 0 && fill(fd, PAGE * 16));
        CHECK(close(fd) == 0 && munmap(p, BIG) == 0);
    }
    return NULL;
}

static void run_from_memory(void)
{
    static char bytes[64 * 1024];
    char *words[] = {"abicheck", "no case has this name", NULL}, *none[] = {NULL};
    int from = open("/proc/self/exe", O_RDONLY), null = open("/dev/null", O_WRONLY);
    int fd = (int)syscall(SYS_memfd_create, "program", MFD_CLOEXEC);
    for (ssize_t count; (count = read(from, bytes, sizeof bytes)) > 0;)
        if (write(fd, bytes, (size_t)count) != count)
            _exit(9);
    dup2(null, 1);
    dup2(null, 2);
    syscall(SYS_execveat, fd, "", words, none, AT_EMPTY_PATH);
    _exit(8);
}

/* A program that exists in memory alone; abicheck ends with 2 when it finds no case. */
static const char *program_in_memory(void)
{
    int status = status_of(run_from_memory);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    return NULL;
}

const struct abi_case shown_cases[] = {
    {"smaps of shared pages of a file", smaps_shared},
    {"smaps of private pages of a file", smaps_private},
    {"pagemap of a file", pagemap_of_files},
    {"shmem_enabled by size", sizes_of_shared_memory},
    {"maps with names of files", maps_names},
    {"memory of files comes back", memory_comes_back},
    {"program in a memfd", program_in_memory},
    {NULL, NULL},
};

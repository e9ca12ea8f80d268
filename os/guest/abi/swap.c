/* Swap devices: swapon and swapoff, and memory that was swapped out. They need a disk with nothing
 * on it; without one, and without the right to swap, they are skipped. */
#include "groups.h"

#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/swap.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>

enum { SMALL = 64, HEADER = 1024 };

static const char *const candidates[] = {"/dev/vdb", "/dev/vda", "/dev/ram0", "/dev/zram0"};

/* Whether the disk can be written and holds nothing but zeroes, or swap, at its beginning. */
static bool is_free(const char *path)
{
    static char start[PAGE];
    int fd = open(path, O_RDWR | O_EXCL);
    bool good = fd >= 0 && read(fd, start, PAGE) == PAGE;
    if (fd >= 0)
        close(fd);
    if (good && !memcmp(start + PAGE - 10, "SWAPSPACE2", 10))
        return true;
    for (size_t at = 0; good && at < PAGE; at++)
        good = !start[at];
    return good;
}

static const char *disk(void)
{
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++)
        if (is_free(candidates[i]))
            return candidates[i];
    return NULL;
}

/* Leaves the case where there is no disk. */
#define DISK(name) \
    const char *name = disk(); \
    if (!name) \
        return NULL

/* Writes a header for `pages` pages, this one included; false if that fails. */
static bool make_swap(const char *path, uint32_t pages, uint32_t version, uint32_t bad)
{
    static char page[PAGE];
    uint32_t info[3] = {version, pages - 1, bad};
    memset(page, 0, sizeof page);
    memcpy(page + HEADER, info, sizeof info);
    memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
    int fd = open(path, O_RDWR);
    bool good = fd >= 0 && pwrite(fd, page, PAGE, 0) == PAGE && !fsync(fd);
    return fd >= 0 && !close(fd) && good;
}

static uint32_t pages_of(const char *path)
{
    uint64_t bytes = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes))
        bytes = 0;
    close(fd);
    return (uint32_t)(bytes / PAGE);
}

static bool swap_on(const char *path)
{
    return make_swap(path, pages_of(path), 1, 0) && !swapon(path, 0);
}

static void fill(char *at, size_t count, unsigned seed)
{
    for (size_t page = 0; page < count; page++)
        for (size_t i = 0; i < PAGE; i += 64)
            *(unsigned *)(at + page * PAGE + i) = seed + (unsigned)(page * 64 + i);
}

/* Whether the pages hold what `fill` put there. */
static bool holds(const char *at, size_t count, unsigned seed)
{
    for (size_t page = 0; page < count; page++)
        for (size_t i = 0; i < PAGE; i += 64)
            if (*(const unsigned *)(at + page * PAGE + i) != seed + (unsigned)(page * 64 + i))
                return false;
    return true;
}

static size_t resident(char *at, size_t count)
{
    static unsigned char there[REGION];
    size_t sum = 0;
    if (mincore(at, count * PAGE, there))
        return (size_t)-1;
    for (size_t page = 0; page < count; page++)
        sum += there[page] & 1;
    return sum;
}

static const char *refuses(void)
{
    FAILS(EINVAL, swapon("/dev/null", 0x80000));
    FAILS(ENOENT, swapon("/no/such/disk", 0));
    FAILS(ENOENT, swapon("", 0));
    FAILS(EINVAL, swapon("/dev/null", 0));
    FAILS(EISDIR, swapon("/dev", 0));
    FAILS(EFAULT, swapon((const char *)8, 0));
    FAILS(ENOENT, swapoff("/no/such/disk"));
    FAILS(EINVAL, swapoff("/dev/null"));
    return NULL;
}

static const char *looks_at_the_header(void)
{
    DISK(path);
    uint32_t all = pages_of(path);
    CHECK(all > SMALL);
    FAILS(EINVAL, swapoff(path));
    CHECK(make_swap(path, SMALL, 2, 0));
    FAILS(EINVAL, swapon(path, 0));
    CHECK(make_swap(path, 1, 1, 0));
    FAILS(EINVAL, swapon(path, 0));
    CHECK(make_swap(path, all + 1, 1, 0));
    FAILS(EINVAL, swapon(path, 0));
    CHECK(make_swap(path, SMALL, 1, 0));
    CHECK(!swapon(path, 0));
    FAILS(EBUSY, swapon(path, 0));
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    FAILS(ETXTBSY, pwrite(fd, "x", 1, 0));
    FAILS(EBUSY, open(path, O_RDWR | O_EXCL));
    CHECK(!swapoff(path));
    FAILS(EINVAL, swapoff(path));
    CHECK(!swapon(path, 0) && !swapoff(path));
    return NULL;
}

static const char *a_disk_is_a_file(void)
{
    DISK(path);
    static char out[3 * PAGE], in[3 * PAGE];
    uint64_t bytes = 0;
    struct stat about;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && !fstat(fd, &about) && S_ISBLK(about.st_mode) && about.st_rdev);
    CHECK(!ioctl(fd, BLKGETSIZE64, &bytes) && (uint64_t)lseek(fd, 0, SEEK_END) == bytes);
    for (size_t i = 0; i < sizeof out; i++)
        out[i] = (char)(i * 7 + i / 251);
    CHECK(pwrite(fd, out, sizeof out, 8 * PAGE + 100) == sizeof out);
    CHECK(pread(fd, in, sizeof in, 8 * PAGE + 100) == sizeof in && !memcmp(in, out, sizeof in));
    CHECK(pwrite(fd, "middle", 6, 9 * PAGE + 17) == 6);
    memcpy(out + PAGE + 17 - 100, "middle", 6);
    CHECK(!fsync(fd));
    CHECK(pread(fd, in, sizeof in, 8 * PAGE + 100) == sizeof in && !memcmp(in, out, sizeof in));
    CHECK(pread(fd, in, PAGE, (off_t)bytes) == 0);
    CHECK(pread(fd, in, PAGE, (off_t)bytes - 100) == 100);
    FAILS(ENOSPC, pwrite(fd, out, PAGE, (off_t)bytes));
    CHECK(pwrite(fd, out, PAGE, (off_t)bytes - 100) == 100);
    memset(out, 0, sizeof out);
    CHECK(pwrite(fd, out, sizeof out, 8 * PAGE) == sizeof out);
    CHECK(pwrite(fd, out, PAGE, 11 * PAGE) == PAGE);
    CHECK(pwrite(fd, out, 100, (off_t)bytes - 100) == 100 && !close(fd));
    return NULL;
}

static const char *pages_that_went_out_come_back(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(REGION);
    fill(all, REGION, 1);
    long before = number_in("/proc/vmstat", "pswpout ");
    CHECK(!madvise(all, REGION * PAGE, MADV_PAGEOUT));
    CHECK(resident(all, REGION) < REGION / 8);
    CHECK(number_in("/proc/self/status", "VmSwap:") >= REGION * 4 * 7 / 8);
    CHECK(number_in("/proc/vmstat", "pswpout ") >= before + REGION * 7 / 8);
    CHECK(number_in("/proc/meminfo", "SwapFree:") < number_in("/proc/meminfo", "SwapTotal:"));
    CHECK(holds(all, REGION, 1));
    fill(all, REGION, 2);
    CHECK(!madvise(all, REGION * PAGE, MADV_PAGEOUT) && holds(all, REGION, 2));
    CHECK(!munmap(all, REGION * PAGE));
    CHECK(!swapoff(path));
    return NULL;
}

#define BEHIND "/sys/kernel/mm/quire/behind"

/* Data that does not compress, and differs from page to page and from time to time. */
static uint64_t noise(uint64_t seed)
{
    seed = (seed ^ seed >> 31) * 0x9e3779b97f4a7c15;
    return seed ^ seed >> 29;
}

static void fill_noise(uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = noise(seed << 32 | i);
}

static bool holds_noise(const uint64_t *words, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        if (words[i] != noise(seed << 32 | i))
            return false;
    return true;
}

/* Whether a number of BEHIND reaches this within ten seconds. */
static bool comes_to(const char *name, long least, long most)
{
    for (int tries = 0; tries < 1000; tries++) {
        long now = number_in(BEHIND, name);
        if (now >= least && now <= most)
            return true;
        usleep(10000);
    }
    return false;
}

/* With a disk behind compressed memory: units beyond its limit go on to the disk. */
static const char *cold_pages_go_behind(void)
{
    enum { MANY = 6144, WORDS = MANY * PAGE / 8 };
    DISK(path);
    if (number_in(BEHIND, "away ") < 0)
        return NULL;
    CHECK(swap_on(path));
    CHECK(number_in(BEHIND, "away ") == 0);
    char *all = pages(MANY);
    uint64_t *words = (uint64_t *)all;
    fill_noise(words, WORDS, 1);
    CHECK(!madvise(all, MANY * PAGE, MADV_PAGEOUT));
    /* 24 MiB, of which 4 stay in memory. */
    CHECK(comes_to("away ", MANY * 3 / 4, MANY));
    CHECK(resident(all, REGION) == 0);
    long read_before = number_in(BEHIND, "read ");
    CHECK(holds_noise(words, WORDS, 1));
    CHECK(number_in(BEHIND, "read ") >= read_before + MANY * 3 / 4);
    /* The pages are written again, and paged out again, while the old content is on its way. */
    for (uint64_t seed = 2; seed < 6; seed++) {
        fill_noise(words, WORDS, seed);
        CHECK(!madvise(all, MANY * PAGE, MADV_PAGEOUT));
        CHECK(!holds_noise(words + WORDS / 3, WORDS / 3, 0));
        CHECK(!madvise(all, MANY * PAGE, MADV_PAGEOUT) && holds_noise(words, WORDS, seed));
    }
    CHECK(number_in(BEHIND, "failed ") == 0);
    CHECK(!munmap(all, MANY * PAGE));
    CHECK(!swapoff(path));
    CHECK(comes_to("away ", 0, 0));
    return NULL;
}

static const char *locked_memory_stays(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(SMALL);
    fill(all, SMALL, 3);
    CHECK(!mlock(all, SMALL * PAGE));
    FAILS(EINVAL, madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    FAILS(EINVAL, madvise(all, SMALL * PAGE, MADV_COLD));
    CHECK(resident(all, SMALL) == SMALL && !munlock(all, SMALL * PAGE));
    CHECK(!madvise(all, SMALL * PAGE, MADV_COLD));
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    CHECK(!mlock(all, SMALL * PAGE) && resident(all, SMALL) == SMALL && holds(all, SMALL, 3));
    CHECK(!swapoff(path));
    return NULL;
}

static const char *children_share_swapped_pages(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(SMALL);
    fill(all, SMALL, 4);
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    pid_t child = fork();
    if (!child) {
        bool good = holds(all, SMALL, 4);
        fill(all, SMALL, 5);
        _exit(!good || !holds(all, SMALL, 5));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(holds(all, SMALL, 4) && !swapoff(path) && holds(all, SMALL, 4));
    return NULL;
}

static const char *calls_find_swapped_pages(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(2 * SMALL), *elsewhere = pages(2 * SMALL);
    fill(all, 2 * SMALL, 6);
    CHECK(!madvise(all, 2 * SMALL * PAGE, MADV_PAGEOUT));
    CHECK(!mprotect(all, SMALL * PAGE, PROT_READ) && holds(all, SMALL, 6));
    CHECK(!mprotect(all, SMALL * PAGE, PROT_NONE));
    CHECK(!munmap(all + 40 * PAGE, 8 * PAGE));
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    char *moved = mremap(all + SMALL * PAGE, SMALL * PAGE, SMALL * PAGE, flags, elsewhere);
    CHECK(moved == elsewhere);
    int fd = open("swapped", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, moved, SMALL * PAGE) == SMALL * PAGE);
    CHECK(!madvise(moved, SMALL * PAGE, MADV_PAGEOUT));
    CHECK(pread(fd, moved + 3 * PAGE, PAGE, 3 * PAGE) == PAGE);
    CHECK(holds(moved, SMALL, 6 + SMALL * 64));
    CHECK(!madvise(moved, SMALL * PAGE, MADV_PAGEOUT));
    CHECK(!madvise(moved, SMALL * PAGE, MADV_DONTNEED) && !moved[0]);
    CHECK(!swapoff(path));
    CHECK(!mprotect(all, 40 * PAGE, PROT_READ) && holds(all, 40, 6));
    return NULL;
}

/* Pages out shared memory and looks for it from here and from a child, which writes it. */
static const char *shared_goes_out(char *all, unsigned seed)
{
    fill(all, SMALL, seed);
    long out = number_in("/proc/vmstat", "pswpout ");
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT) && resident(all, SMALL) == 0);
    CHECK(number_in("/proc/vmstat", "pswpout ") >= out + SMALL);
    long in = number_in("/proc/vmstat", "pswpin ");
    pid_t child = fork();
    if (!child) {
        bool good = holds(all, SMALL, seed);
        fill(all, SMALL, seed + 1);
        _exit(!good || madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(number_in("/proc/vmstat", "pswpin ") >= in + SMALL);
    CHECK(holds(all, SMALL, seed + 1));
    return NULL;
}

/* A file in memory whose pages are away is read, written, punched and cut. */
static const char *file_goes_out(int fd, char *all)
{
    static char some[3 * PAGE];
    struct stat is;
    fill(all, SMALL, 40);
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT) && resident(all, SMALL) == 0);
    CHECK(!fstat(fd, &is) && is.st_blocks == SMALL * PAGE / 512);
    CHECK(lseek(fd, 0, SEEK_DATA) == 0 && lseek(fd, 0, SEEK_HOLE) == SMALL * PAGE);
    CHECK(pread(fd, some, sizeof some, 5 * PAGE) == sizeof some && holds(some, 3, 40 + 5 * 64));
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    fill(some, 3, 41);
    CHECK(pwrite(fd, some, sizeof some, 20 * PAGE) == sizeof some && holds(all + 20 * PAGE, 3, 41));
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    CHECK(!fallocate(fd, hole, 9 * PAGE, 3 * PAGE) && !ftruncate(fd, 50 * PAGE + 100));
    CHECK(!ftruncate(fd, SMALL * PAGE) && !all[9 * PAGE] && !all[12 * PAGE - 64]);
    CHECK(holds(all, 9, 40) && holds(all + 12 * PAGE, 8, 40 + 12 * 64));
    CHECK(holds(all + 20 * PAGE, 3, 41) && holds(all + 23 * PAGE, 27, 40 + 23 * 64));
    CHECK(*(unsigned *)(all + 50 * PAGE) == 40 + 50 * 64 && !all[50 * PAGE + 128]);
    CHECK(!all[51 * PAGE] && !all[63 * PAGE]);
    return NULL;
}

static const char *shared_memory_goes_out(void)
{
    DISK(path);
    CHECK(swap_on(path));
    int fd = memfd_create("away", 0), rights = PROT_READ | PROT_WRITE;
    CHECK(fd >= 0 && !ftruncate(fd, SMALL * PAGE));
    int id = shmget(IPC_PRIVATE, SMALL * PAGE, 0600);
    CHECK(id >= 0);
    char *all[] = {
        mmap(NULL, SMALL * PAGE, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        shmat(id, NULL, 0),
        mmap(NULL, SMALL * PAGE, rights, MAP_SHARED, fd, 0),
    };
    CHECK(!shmctl(id, IPC_RMID, NULL));
    const char *wrong = NULL;
    for (unsigned i = 0; i < 3 && !wrong; i++) {
        CHECK(all[i] != MAP_FAILED);
        wrong = shared_goes_out(all[i], 20 + 4 * i);
    }
    wrong = wrong ? wrong : file_goes_out(fd, all[2]);
    if (wrong)
        return wrong;
    /* The device gives back all that is away, and has nothing of a segment that has ended. */
    CHECK(!madvise(all[0], SMALL * PAGE, MADV_PAGEOUT));
    CHECK(!madvise(all[1], SMALL * PAGE, MADV_PAGEOUT) && !shmdt(all[1]));
    CHECK(!swapoff(path) && holds(all[0], SMALL, 21));
    CHECK(!munmap(all[0], SMALL * PAGE) && !munmap(all[2], SMALL * PAGE) && !close(fd));
    return NULL;
}

static const char *memory_without_rights_comes_back(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(SMALL);
    fill(all, SMALL, 7);
    CHECK(!madvise(all, SMALL * PAGE, MADV_PAGEOUT));
    CHECK(!mprotect(all, SMALL * PAGE, PROT_NONE) && !swapoff(path));
    CHECK(!mprotect(all, SMALL * PAGE, PROT_READ | PROT_WRITE) && holds(all, SMALL, 7));
    all[0] = 1;
    return NULL;
}

static const char *is_reported_for_other_processes(void)
{
    DISK(path);
    CHECK(make_swap(path, SMALL, 1, 0) && !swapon(path, 0x8000 | 7));
    char line[256] = "", name[64], kind[32];
    long size, used, priority;
    FILE *swaps = fopen("/proc/swaps", "r");
    CHECK(swaps && fgets(line, sizeof line, swaps) && fgets(line, sizeof line, swaps));
    fclose(swaps);
    CHECK(sscanf(line, "%63s %31s %ld %ld %ld", name, kind, &size, &used, &priority) == 5);
    CHECK(!strcmp(name, path) && !strcmp(kind, "partition"));
    CHECK(size == (SMALL - 1) * PAGE / 1024 && used == 0 && priority == 7);
    struct sysinfo about;
    CHECK(!sysinfo(&about) && about.totalswap * about.mem_unit == (SMALL - 1) * PAGE);
    CHECK(!swapoff(path) && !sysinfo(&about) && !about.totalswap);
    return NULL;
}

static const char *a_process_is_paged_out_by_another(void)
{
    DISK(path);
    CHECK(swap_on(path));
    char *all = pages(SMALL);
    int go[2], ready[2];
    char byte;
    CHECK(!pipe(go) && !pipe(ready));
    pid_t child = fork();
    if (!child) {
        fill(all, SMALL, 8);
        bool good = write(ready[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1;
        _exit(!good || !holds(all, SMALL, 8));
    }
    char status_path[64];
    snprintf(status_path, sizeof status_path, "/proc/%d/status", (int)child);
    CHECK(read(ready[0], &byte, 1) == 1);
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    struct iovec piece = {all, SMALL * PAGE};
    CHECK(fd >= 0);
    CHECK(syscall(SYS_process_madvise, fd, &piece, 1, MADV_PAGEOUT, 0) == SMALL * PAGE);
    CHECK(number_in(status_path, "VmSwap:") >= SMALL * 4 / 2);
    CHECK(write(go[1], "x", 1) == 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status && !swapoff(path));
    return NULL;
}

static bool set(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return good;
}

static const char *is_a_number_up_to(const char *path, long most)
{
    char old[32], largest[32], beyond[32];
    long was = number_in(path, "");
    if (access(path, W_OK))
        return NULL;
    snprintf(old, sizeof old, "%ld", was);
    snprintf(largest, sizeof largest, "%ld\n", most);
    snprintf(beyond, sizeof beyond, "%ld", most + 1);
    CHECK(was >= 0 && was <= most);
    CHECK(set(path, largest) && number_in(path, "") == most);
    CHECK(set(path, "0") && number_in(path, "") == 0);
    CHECK(!set(path, beyond) && errno == EINVAL && !set(path, "much"));
    CHECK(number_in(path, "") == 0 && set(path, old));
    return NULL;
}

static const char *swappiness_is_a_number(void)
{
    return is_a_number_up_to("/proc/sys/vm/swappiness", 200);
}

static const char *proactiveness_is_a_number(void)
{
    return is_a_number_up_to("/proc/sys/vm/compaction_proactiveness", 100);
}

static const char *extfrag_threshold_is_a_number(void)
{
    CHECK(number_in("/proc/sys/vm/extfrag_threshold", "") == 500);
    return is_a_number_up_to("/proc/sys/vm/extfrag_threshold", 1000);
}

/* As much as is free and some more: it fits with swap only. Small machines only. */
static const char *swap_is_memory(void)
{
    DISK(path);
    struct sysinfo about;
    size_t extra = 24 * MIB;
    CHECK(!sysinfo(&about));
    if (about.freeram * about.mem_unit > 600 * MIB || pages_of(path) < 128 * MIB / PAGE)
        return NULL;
    CHECK(swap_on(path));
    size_t count = (about.freeram * about.mem_unit + extra) / PAGE;
    char *all = pages(count);
    madvise(all, count * PAGE, MADV_HUGEPAGE); /* It is done sooner. */
    for (size_t page = 0; page < count; page++)
        *(size_t *)(all + page * PAGE) = page * 3;
    for (size_t page = 0; page < count; page++)
        if (*(size_t *)(all + page * PAGE) != page * 3)
            return why(__LINE__, "content", (long)page, EIO);
    CHECK(!munmap(all, count * PAGE) && !swapoff(path));
    return NULL;
}

static const char *a_group_pages_out_its_own(void)
{
    enum { ALL = 4 * LIMIT_PAGES };
    DISK(path);
    GROUP(one);
    CHECK(swap_on(path) && group_write(one, "memory.max", LIMIT_WORD));
    char *beside = pages(ALL);
    fill(beside, ALL, 8);
    pid_t child = fork();
    if (!child) {
        munmap(beside, ALL * PAGE);
        bool moved = group_write(one, "cgroup.procs", "0");
        char *all = pages(ALL);
        fill(all, ALL, 9);
        bool kept = holds(all, ALL, 9) && holds(all, ALL, 9);
        long out = group_number(one, "memory.swap.current", "");
        long there = group_number(one, "memory.current", "");
        /* Readahead, on each CPU, and pages under writeback may exceed the limit until the next
         * count. */
        long half = 2 * LIMIT_PAGES * PAGE;
        bool less = out >= half && there <= half;
        /* As much again, brought in by a call. */
        char *more = mmap(NULL, ALL * PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        bool brought = more != MAP_FAILED && !more[0] && !munmap(more, ALL * PAGE);
        kept = kept && holds(all, ALL, 9);
        _exit((moved ? 0 : 1) | (kept ? 0 : 2) | (less ? 0 : 4) | (brought ? 0 : 8));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    if (status)
        return why(__LINE__, "the child's result", status, 0);
    CHECK(number_in("/proc/self/status", "VmSwap:") == 0 && holds(beside, ALL, 8));
    CHECK(group_number(one, "memory.events", "max ") > 0);
    CHECK(group_number(one, "memory.events", "oom_kill ") == 0);
    CHECK(group_number(one, "memory.swap.current", "") == 0);
    CHECK(!rmdir(one) && !swapoff(path));
    return NULL;
}

static const char *a_group_reclaims_on_request(void)
{
    DISK(path);
    GROUP(one);
    CHECK(!group_write(one, "memory.reclaim", "64K") && errno == EAGAIN);
    CHECK(!group_write(one, "memory.reclaim", "x") && errno == EINVAL);
    CHECK(swap_on(path));
    int done[2], go[2];
    CHECK(!pipe(done) && !pipe(go));
    pid_t child = fork();
    if (!child) {
        char byte;
        bool good = group_write(one, "cgroup.procs", "0");
        char *all = pages(REGION);
        fill(all, REGION, 10);
        good = good && write(done[1], "", 1) == 1 && read(go[0], &byte, 1) == 1;
        /* Not all swapped-out pages are of this region. */
        good = good && resident(all, REGION) <= REGION * 3 / 4 && holds(all, REGION, 10);
        good = good && write(done[1], "", 1) == 1 && read(go[0], &byte, 1) == 1;
        /* Less room than there is in use: the rest goes out, and no process ends. */
        _exit(!good || !holds(all, REGION, 10));
    }
    char byte;
    CHECK(!close(done[1]));
    CHECK(read(done[0], &byte, 1) == 1 && group_write(one, "memory.reclaim", "1M"));
    /* A request may take other pages than those that are swapped out. */
    for (int more = 0; more < 3 && group_number(one, "memory.swap.current", "") < 1 << 20; more++)
        CHECK(group_write(one, "memory.reclaim", "1M"));
    CHECK(group_number(one, "memory.swap.current", "") >= 1 << 20);
    CHECK(write(go[1], "", 1) == 1 && read(done[0], &byte, 1) == 1);
    CHECK(group_write(one, "memory.max", "1M"));
    CHECK(group_number(one, "memory.current", "") <= 1 << 20 && write(go[1], "", 1) == 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && !status);
    CHECK(group_number(one, "memory.events", "oom_kill ") == 0);
    CHECK(!group_write(one, "memory.reclaim", "1G") && errno == EAGAIN);
    CHECK(!rmdir(one) && !swapoff(path));
    return NULL;
}

const struct abi_case swap_cases[] = {
    {"swap_refuses_other_files_than_disks", refuses},
    {"swap_looks_at_the_header", looks_at_the_header},
    {"swap_a_disk_is_a_file", a_disk_is_a_file},
    {"swap_pages_that_went_out_come_back", pages_that_went_out_come_back},
    {"swap_cold_pages_go_behind", cold_pages_go_behind},
    {"swap_locked_memory_stays", locked_memory_stays},
    {"swap_children_share_swapped_pages", children_share_swapped_pages},
    {"swap_calls_find_swapped_pages", calls_find_swapped_pages},
    {"swap_shared_memory_goes_out", shared_memory_goes_out},
    {"swap_memory_without_rights_comes_back", memory_without_rights_comes_back},
    {"swap_is_reported_for_other_processes", is_reported_for_other_processes},
    {"swap_a_process_is_paged_out_by_another", a_process_is_paged_out_by_another},
    {"swap_a_group_pages_out_its_own", a_group_pages_out_its_own},
    {"swap_a_group_reclaims_on_request", a_group_reclaims_on_request},
    {"swap_swappiness_is_a_number", swappiness_is_a_number},
    {"compact_proactiveness_is_a_number", proactiveness_is_a_number},
    {"compact_extfrag_threshold_is_a_number", extfrag_threshold_is_a_number},
    {"swap_is_memory", swap_is_memory},
    {NULL, NULL},
};

/* Reserved folios (hugetlb). Each case gives the pool of 2 MiB a size of its own, and empties it. */
#include "abi.h"

#include <linux/falloc.h>
#include <setjmp.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/statfs.h>

#define SIZE ((size_t)2 << 20)
#define POOLS "/sys/kernel/mm/hugepages/hugepages-2048kB/"

enum { RW = PROT_READ | PROT_WRITE, HUGE = MAP_HUGETLB, NAMELESS = MAP_ANONYMOUS };

static long value_of(const char *path)
{
    char text[32];
    int fd = open(path, O_RDONLY);
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    return count <= 0 ? -1 : (text[count] = 0, atol(text));
}

bool set_pool(long folios)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", folios);
    int fd = open(POOLS "nr_hugepages", O_WRONLY);
    bool wrote = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return wrote && value_of(POOLS "nr_hugepages") == folios;
}

static bool has(long free, long promised)
{
    return value_of(POOLS "free_hugepages") == free && value_of(POOLS "resv_hugepages") == promised;
}

static char *map(size_t count, int flags, int fd)
{
    int prot = RW;
    return mmap(NULL, count * SIZE, prot, flags, fd, 0);
}

static const char *promises(void)
{
    CHECK(set_pool(4) && has(4, 0) && value_of("/proc/sys/vm/nr_hugepages") == 4);
    char *p = map(3, MAP_PRIVATE | NAMELESS | HUGE, -1);
    CHECK(p != MAP_FAILED && (size_t)p % SIZE == 0 && has(4, 3));
    CHECK(map(2, MAP_PRIVATE | NAMELESS | HUGE, -1) == MAP_FAILED && errno == ENOMEM);
    p[SIZE] = 1;
    CHECK(has(3, 2));
    char *q = map(1, MAP_SHARED | NAMELESS | HUGE | 21 << 26, -1);
    CHECK(q != MAP_FAILED && has(3, 3) && q[9] == 0 && has(2, 2));
    CHECK(munmap(p, 3 * SIZE) == 0 && has(3, 0));
    CHECK(munmap(q, SIZE) == 0 && has(4, 0));
    FAILS(EINVAL, (long)mmap(NULL, SIZE, RW, MAP_PRIVATE | NAMELESS | HUGE | 23 << 26, -1, 0));
    CHECK(set_pool(0));
    return NULL;
}

static sigjmp_buf back;

static void jump(int signal)
{
    siglongjmp(back, signal);
}

static const char *without(void)
{
    CHECK(set_pool(1) && signal(SIGBUS, jump) != SIG_ERR);
    char *p = map(2, MAP_PRIVATE | NAMELESS | HUGE | MAP_NORESERVE, -1);
    CHECK(p != MAP_FAILED && has(1, 0));
    p[0] = 1;
    int got = sigsetjmp(back, 1);
    if (!got)
        p[SIZE] = 2;
    CHECK(got == SIGBUS && p[0] == 1 && has(0, 0));
    FAILS(EFAULT, read(open("/dev/zero", O_RDONLY), p + SIZE, 5));
    CHECK(madvise(p, SIZE, MADV_DONTNEED) == 0 && has(1, 0));
    p[SIZE] = 3;
    CHECK(munmap(p, 2 * SIZE) == 0 && set_pool(0));
    return NULL;
}

static const char *forks(void)
{
    CHECK(set_pool(3));
    char *p = map(2, MAP_PRIVATE | NAMELESS | HUGE, -1);
    CHECK(p != MAP_FAILED);
    memset(p, 1, 2 * SIZE);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    if (!child) {
        char go;
        p[5] = 2;
        bool good = p[6] == 1 && p[SIZE] == 1 && has(0, 0);
        _exit(read(pipes[0], &go, 1) == 1 && good && p[SIZE + 1] == 1 ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && write(pipes[1], "x", 1) == 1 && waitpid(child, &status, 0) == child);
    CHECK(status == 0 && p[5] == 1 && has(1, 0));
    p[SIZE + 1] = 3;
    CHECK(has(1, 0) && munmap(p, 2 * SIZE) == 0 && has(3, 0) && set_pool(0));
    return NULL;
}

static const char *wholes(void)
{
    CHECK(set_pool(4));
    char *p = map(4, MAP_PRIVATE | NAMELESS | HUGE, -1);
    CHECK(p != MAP_FAILED);
    p[0] = p[SIZE] = p[2 * SIZE] = 7;
    FAILS(EINVAL, munmap(p, PAGE));
    FAILS(EINVAL, munmap(p + PAGE, SIZE));
    FAILS(EINVAL, mprotect(p + PAGE, SIZE - PAGE, PROT_READ));
    FAILS(EINVAL, madvise(p + PAGE, SIZE, MADV_DONTNEED));
    FAILS(EINVAL, madvise(p, SIZE, MADV_FREE));
    FAILS(EINVAL, madvise(p, SIZE, MADV_PAGEOUT));
    FAILS(EINVAL, (long)mmap(p + PAGE, SIZE, RW, MAP_FIXED | MAP_PRIVATE | NAMELESS | HUGE, -1, 0));
    CHECK(madvise(p, SIZE + PAGE, MADV_DONTNEED) == 0 && p[SIZE] == 7);
    CHECK(p[0] == 0 && mprotect(p + SIZE, SIZE, PROT_READ) == 0 && p[SIZE] == 7);
    CHECK(munmap(p + 2 * SIZE, SIZE) == 0 && munmap(p, 2 * SIZE) == 0);
    CHECK(munmap(p + 3 * SIZE, SIZE) == 0 && has(4, 0) && set_pool(0));
    return NULL;
}

static const char *files(void)
{
    CHECK(set_pool(4));
    int fd = (int)syscall(SYS_memfd_create, "huge", MFD_HUGETLB | 21 << 26);
    CHECK(fd >= 0);
    struct statfs fs;
    struct stat about;
    CHECK(fstatfs(fd, &fs) == 0 && fs.f_type == 0x958458f6 && (size_t)fs.f_bsize == SIZE);
    FAILS(EINVAL, write(fd, "x", 1));
    FAILS(EINVAL, ftruncate(fd, PAGE));
    CHECK(ftruncate(fd, 3 * SIZE) == 0 && has(4, 0));
    char *p = map(3, MAP_SHARED, fd), *q = map(1, MAP_PRIVATE, fd), byte;
    CHECK(p != MAP_FAILED && q != MAP_FAILED && value_of(POOLS "free_hugepages") == 4);
    p[0] = 5;
    CHECK(q[0] == 5 && pread(fd, &byte, 1, 0) == 1 && byte == 5);
    CHECK(pread(fd, &byte, 1, SIZE) == 1 && byte == 0);
    q[1] = 6;
    CHECK(p[1] == 0 && q[0] == 5 && value_of(POOLS "free_hugepages") == 2);
    CHECK(munmap(q, SIZE) == 0 && value_of(POOLS "free_hugepages") == 3);
    CHECK(fallocate(fd, 0, 2 * SIZE, SIZE) == 0 && value_of(POOLS "free_hugepages") == 2);
    CHECK(fstat(fd, &about) == 0 && about.st_blocks == 2 * 4096 && (size_t)about.st_blksize == SIZE);
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE) == 0 && p[0] == 0);
    CHECK(ftruncate(fd, SIZE) == 0 && value_of(POOLS "free_hugepages") == 3);
    CHECK(munmap(p, 3 * SIZE) == 0 && close(fd) == 0 && has(4, 0) && set_pool(0));
    return NULL;
}

static const char *mounted(void)
{
    CHECK(set_pool(2) && mkdir("huge", 0755) == 0);
    CHECK(mount("none", "huge", "hugetlbfs", 0, "pagesize=2M") == 0);
    int fd = open("huge/file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    char *p = map(2, MAP_SHARED, fd);
    struct stat about;
    CHECK(p != MAP_FAILED && has(2, 2) && fstat(fd, &about) == 0);
    CHECK((size_t)about.st_size == 2 * SIZE);
    p[SIZE] = 1;
    CHECK(has(1, 1) && munmap(p, 2 * SIZE) == 0 && has(1, 1) && close(fd) == 0 && has(1, 1));
    CHECK(unlink("huge/file") == 0 && has(2, 0) && umount("huge") == 0 && set_pool(0));
    return NULL;
}

static const char *segments(void)
{
    CHECK(set_pool(2));
    int id = shmget(IPC_PRIVATE, SIZE + 1, SHM_HUGETLB | IPC_CREAT | 0600);
    CHECK(id >= 0 && has(2, 2));
    char *p = shmat(id, NULL, 0);
    CHECK(p != (void *)-1 && (size_t)p % SIZE == 0);
    p[SIZE + 5] = 3;
    CHECK(has(1, 1) && shmctl(id, IPC_RMID, NULL) == 0 && shmdt(p) == 0 && has(2, 0) && set_pool(0));
    return NULL;
}

/* The value of a line of /proc/self/smaps for the area at `p`, in kB. */
static long smaps(char *p, const char *name)
{
    char line[256];
    long value = -1;
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2)
            here = start <= (unsigned long)p && (unsigned long)p < end;
        else if (here && !strncmp(line, name, strlen(name)))
            value = atol(line + strlen(name));
    }
    if (file)
        fclose(file);
    return value;
}

/* The word that kpageflags has for the frame of a page; 0 if there is none. */
static uint64_t frame_flags(const char *page)
{
    uint64_t word = 0, flags = 0;
    int map = open("/proc/self/pagemap", O_RDONLY), all = open("/proc/kpageflags", O_RDONLY);
    bool good = pread(map, &word, 8, (off_t)((uintptr_t)page / PAGE * 8)) == 8 &&
                pread(all, &flags, 8, (off_t)(word & ((1ull << 55) - 1)) * 8) == 8;
    close(map);
    close(all);
    return good ? flags : 0;
}

static const char *shown(void)
{
    enum { HEAD = 1 << 15, TAIL = 1 << 16, OF_POOL = 1 << 17, THP = 1 << 22 };
    const uint64_t place = HEAD | TAIL | OF_POOL | THP;
    CHECK(set_pool(2));
    char *p = map(2, MAP_PRIVATE | NAMELESS | HUGE, -1);
    CHECK(p != MAP_FAILED);
    p[0] = 1;
    CHECK(smaps(p, "KernelPageSize:") == 2048 && smaps(p, "Private_Hugetlb:") == 2048);
    CHECK(smaps(p, "Rss:") == 0 && smaps(p, "Shared_Hugetlb:") == 0);
    CHECK((frame_flags(p) & place) == (HEAD | OF_POOL));
    CHECK((frame_flags(p + 511 * PAGE) & place) == (TAIL | OF_POOL));
    unsigned char there[2 * 512];
    CHECK(mincore(p, 2 * SIZE, there) == 0 && there[0] == 1 && there[511] == 1 && there[512] == 0);
    CHECK(munmap(p, 2 * SIZE) == 0 && set_pool(0));
    return NULL;
}

static const char *surplus(void)
{
    CHECK(set_pool(0) && make_file(POOLS "nr_overcommit_hugepages", "2"));
    char *p = map(2, MAP_PRIVATE | NAMELESS | HUGE, -1);
    CHECK(p != MAP_FAILED && value_of(POOLS "surplus_hugepages") == 2 && has(2, 2));
    CHECK(map(1, MAP_PRIVATE | NAMELESS | HUGE, -1) == MAP_FAILED);
    p[0] = 1;
    CHECK(has(1, 1) && munmap(p, 2 * SIZE) == 0 && value_of(POOLS "nr_hugepages") == 0);
    CHECK(make_file(POOLS "nr_overcommit_hugepages", "0"));
    return NULL;
}

const struct abi_case reserved_cases[] = {
    {"MAP_HUGETLB promises folios", promises},
    {"MAP_HUGETLB without a promise", without},
    {"MAP_HUGETLB and fork", forks},
    {"MAP_HUGETLB in whole folios", wholes},
    {"MFD_HUGETLB", files},
    {"hugetlbfs", mounted},
    {"SHM_HUGETLB", segments},
    {"MAP_HUGETLB in /proc", shown},
    {"nr_overcommit_hugepages", surplus},
    {NULL, NULL},
};

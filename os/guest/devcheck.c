/* devcheck: checks memory that shows registers of a device: a clock, which /dev/mem shows to be
 * read. The registers answer through the mapping, also in a child, after mprotect and after mremap;
 * other memory and writes are refused, and calls that would take a page away, too. */
#include "common.h"

#include <sys/wait.h>

#if defined(__x86_64__)
/* The HPET: the general capabilities name the vendor (IA-PC HPET specification, 2.3.4). */
enum { WORD = 0 };
#define CLOCK 0xfed00000ul
#elif defined(__aarch64__)
/* The PL031: its identification (Arm DDI 0224, 3.3). */
enum { WORD = 0xfe0 };
#define CLOCK 0x09010000ul
#else
/* The Goldfish clock: the lower and the upper half of nanoseconds since 1970. */
enum { WORD = 0 };
#define CLOCK 0x00101000ul
#endif

static const char *scene = "none";

/* Verifies what no RAM holds by chance. */
static void check_registers(const volatile void *page)
{
    const volatile uint32_t *at = (const volatile uint32_t *)((const volatile char *)page + WORD);
#if defined(__x86_64__)
    bool good = at[0] >> 16 == 0x8086 && (at[0] & 0xff) != 0 && at[1] != 0;
#elif defined(__aarch64__)
    /* Part 0x031, and "PrimeCell" in the last four. */
    bool good = at[0] == 0x31 && (at[1] & 15) == 0x0 && at[4] == 0x0d && at[5] == 0xf0 &&
                at[6] == 0x05 && at[7] == 0xb1;
#else
    uint64_t low = at[0], nanos = (uint64_t)at[1] << 32 | low;
    uint64_t seconds = nanos / 1000000000u, now = (uint64_t)time(NULL);
    bool good = seconds + 3600 > now && seconds < now + 3600;
#endif
    if (!good)
        end(1, "%s: the registers are %#x, %#x.", scene, at[0], at[1]);
}

static void *map(int fd, size_t bytes, int prot, int flags, unsigned long physical)
{
    return mmap(NULL, bytes, prot, flags, fd, (off_t)physical);
}

static void refused(const void *got, int expected)
{
    if (got != MAP_FAILED || errno != expected)
        end(1, "%s: mmap gives %p and error %d, and should fail with %d.", scene, got,
            got == MAP_FAILED ? errno : 0, expected);
}

static void fails(int result, int expected)
{
    if (result != -1 || errno != expected)
        end(1, "%s: the call gives %d and error %d.", scene, result, result ? errno : 0);
}

static void check_calls(char *page)
{
    scene = "calls";
    fails(madvise(page, PAGE, MADV_DONTNEED), EINVAL);
    fails(mprotect(page, PAGE, PROT_READ | PROT_WRITE), EACCES);
    if (mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
        end(1, "%s: registers grew.", scene);
    if (mlock(page, PAGE))
        failed("mlock");
}

static void check_fork(const char *page)
{
    scene = "a child";
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (child == 0) {
        check_registers(page);
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        end(1, "a child ended with status %#x.", status);
    check_registers(page);
}

static char *check_moves(char *page)
{
    scene = "after mprotect";
    if (mprotect(page, PAGE, PROT_NONE) || mprotect(page, PAGE, PROT_READ))
        failed("mprotect");
    check_registers(page);
    scene = "after mremap";
    char *room = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        failed("mmap");
    char *moved = mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    if (moved != room)
        failed("mremap");
    check_registers(moved);
    return moved;
}

/* The kernel reads them for the program, too. */
static void check_copy(const char *page)
{
    scene = "a pipe";
    int ends[2];
    uint32_t words[8];
    if (pipe(ends) || write(ends[1], page + WORD, sizeof words) != sizeof words ||
        read(ends[0], words, sizeof words) != sizeof words)
        failed("a pipe");
    close(ends[0]);
    close(ends[1]);
}

int main(int count, char **words)
{
    program_name = "devcheck";
    (void)words;
    if (count != 1)
        end(2, "devcheck has no arguments.");
    int fd = open("/dev/mem", O_RDWR);
    if (fd < 0)
        failed("open /dev/mem");
    scene = "other memory";
    refused(map(fd, PAGE, PROT_READ, MAP_SHARED, 0x80400000ul), EPERM);
    refused(map(fd, 2 * PAGE, PROT_READ, MAP_SHARED, CLOCK), EPERM);
    refused(map(fd, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, CLOCK), EPERM);
    refused(map(fd, PAGE, PROT_READ, MAP_PRIVATE, CLOCK), EPERM);
    scene = "registers";
    char *page = map(fd, PAGE, PROT_READ, MAP_SHARED, CLOCK);
    if (page == MAP_FAILED)
        failed("mmap");
    close(fd);
    check_registers(page);
    puts("ok registers");
    check_calls(page);
    check_registers(page);
    puts("ok calls");
    check_fork(page);
    puts("ok fork");
    page = check_moves(page);
    puts("ok moves");
    check_copy(page);
    puts("ok copy");
    if (munmap(page, PAGE))
        failed("munmap");
    unsigned char vector;
    scene = "the end";
    fails(mincore(page, PAGE, &vector), ENOMEM);
    puts("ok end");
    return 0;
}

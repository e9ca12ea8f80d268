/* wild: children that do forbidden things, each of which must die of the right signal, while
 * everything else lives on. */
#include "common.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

typedef void deed(void);

/* Hides the value of an address from the compiler. */
static volatile uintptr_t wanted;

static void load(uintptr_t address)
{
    wanted = address;
    (void)*(volatile char *)wanted;
}

static void store(uintptr_t address)
{
    wanted = address;
    *(volatile char *)wanted = 1;
}

static void jump(uintptr_t address)
{
    wanted = address;
    ((void (*)(void))wanted)();
}

static void load_null(void) { load(0); }
static void store_null(void) { store(8); }
static void jump_null(void) { jump(0); }
#ifdef __riscv
/* Beyond the lower half of each mode; in some the page below is a stack's. */
static void load_user_end(void) { load(0x0100000000000000); }
#else
static void load_user_end(void) { load(0x00007ffffffff000); }
#endif
static void load_non_canonical(void) { load(0x0000800000000000); }
static void store_non_canonical(void) { store(0x1234567812345678); }
static void jump_non_canonical(void) { jump(0x4141414141414140); }
static void load_kernel(void) { load(0xffff800000000000); }
static void store_kernel(void) { store(0xffffffff81000000); }
static void jump_kernel(void) { jump(0xffffffff81000000); }
static void load_last(void) { load(UINTPTR_MAX); }

static char *page(int rights)
{
    char *p = mmap(NULL, PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        failed("mmap");
    return p;
}

static void store_read_only(void) { store((uintptr_t)page(PROT_READ)); }
static void load_no_rights(void) { load((uintptr_t)page(PROT_NONE)); }
static void store_code(void) { store((uintptr_t)store_code); }

/* A return instruction in memory that is data. */
static void execute_data(void)
{
    char *p = page(PROT_READ | PROT_WRITE);
#ifdef __x86_64__
    memcpy(p, "\xc3", 1);
#elif defined(__riscv)
    memcpy(p, "\x67\x80\x00\x00", 4);
#else
    memcpy(p, "\xc0\x03\x5f\xd6", 4);
#endif
    __builtin___clear_cache(p, p + 16);
    jump((uintptr_t)p);
}

static void execute_stack(void)
{
    char code[16] __attribute__((aligned(16)));
    memset(code, 0xc3, sizeof code);
    jump((uintptr_t)code);
}

static void load_unmapped(void)
{
    char *p = page(PROT_READ);
    munmap(p, PAGE);
    load((uintptr_t)p);
}

/* Recursion that the compiler cannot turn into a loop, nor see that it has no end. */
static int descend(volatile char *above)
{
    volatile char frame[4096];
    frame[0] = above[0];
    if (wanted == 1)
        return 0;
    return descend(frame) + frame[0];
}

static void overflow_stack(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_STACK, &limit);
    volatile char first = 0;
    wanted = 0;
    wanted = (uintptr_t)descend(&first);
}

static void illegal(void)
{
#ifdef __x86_64__
    __asm__ volatile("ud2");
#elif defined(__riscv)
    __asm__ volatile("unimp");
#else
    __asm__ volatile(".inst 0");
#endif
}

static void privileged(void)
{
#ifdef __x86_64__
    __asm__ volatile("hlt");
#elif defined(__riscv)
    __asm__ volatile("csrw satp, zero");
#else
    __asm__ volatile("msr ttbr0_el1, xzr");
#endif
}

static void stack_pointer_nowhere(void)
{
#ifdef __x86_64__
    __asm__ volatile("mov $0x10, %%rsp\n\tpush %%rax" : : : "memory");
#elif defined(__riscv)
    __asm__ volatile("li sp, 16\n\tsd sp, -16(sp)" : : : "memory");
#else
    __asm__ volatile("mov x9, #16\n\tmov sp, x9\n\tstr x9, [sp, #-16]!" : : : "x9", "memory");
#endif
}

static void abort_self(void) { abort(); }

static const struct {
    const char *name;
    deed *deed;
    int signal;
} deeds[] = {
    {"load from page 0", load_null, SIGSEGV},
    {"store to page 0", store_null, SIGSEGV},
    {"jump to page 0", jump_null, SIGSEGV},
    {"load beyond the last page of programs", load_user_end, SIGSEGV},
    {"load at a non-canonical address", load_non_canonical, SIGSEGV},
    {"store at a non-canonical address", store_non_canonical, SIGSEGV},
    {"jump to a non-canonical address", jump_non_canonical, SIGSEGV},
    {"load from the kernel's half", load_kernel, SIGSEGV},
    {"store to the kernel's half", store_kernel, SIGSEGV},
    {"jump to the kernel's half", jump_kernel, SIGSEGV},
    {"load from the last byte of all", load_last, SIGSEGV},
    {"store to a read-only page", store_read_only, SIGSEGV},
    {"load from a page without rights", load_no_rights, SIGSEGV},
    {"store to code", store_code, SIGSEGV},
    {"execution of data", execute_data, SIGSEGV},
    {"execution of the stack", execute_stack, SIGSEGV},
    {"load from unmapped memory", load_unmapped, SIGSEGV},
    {"overflow of the stack", overflow_stack, SIGSEGV},
    {"illegal instruction", illegal, SIGILL},
#ifdef __x86_64__
    {"privileged instruction", privileged, SIGSEGV},
#else
    {"privileged instruction", privileged, SIGILL},
#endif
    {"stack pointer that points nowhere", stack_pointer_nowhere, SIGSEGV},
    {"abort", abort_self, SIGABRT},
};

/* Whether a child that does deed `i` dies of its signal. */
static bool check(size_t i)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        failed("fork");
    if (!child) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        deeds[i].deed();
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        failed("waitpid");
    bool good = WIFSIGNALED(status) && WTERMSIG(status) == deeds[i].signal;
    if (good)
        printf("ok %s\n", deeds[i].name);
    else
        printf("FAILED %s: status %#x, not signal %d\n", deeds[i].name, status, deeds[i].signal);
    return good;
}

int main(int argc, char **argv)
{
    program_name = "wild";
    if (argc > 2)
        end(2, "usage: wild [ROUNDS]");
    long rounds = argc > 1 ? number(argv[1], 1, 100000) : 1;
    size_t count = sizeof deeds / sizeof *deeds, bad = 0;
    for (long round = 0; round < rounds; round++)
        for (size_t i = 0; i < count; i++)
            bad += !check(i);
    printf("wild: %zu ok, %zu failed\n", count * (size_t)rounds - bad, bad);
    return bad != 0;
}

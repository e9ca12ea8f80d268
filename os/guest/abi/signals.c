/* Signals: delivery, arguments of handlers, masks, waiting, interrupted calls. */
#include "abi.h"

#include <setjmp.h>

static volatile sig_atomic_t seen, seen_code;
static void *volatile seen_address;
static sigjmp_buf back;

static void note(int number) { seen = number; }

static void note_and_jump(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen = number;
    seen_code = info->si_code;
    seen_address = info->si_addr;
    siglongjmp(back, 1);
}

static bool handle(int number, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    return sigaction(number, &action, NULL) == 0;
}

static bool handle_simply(int number, int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};
    return sigaction(number, &action, NULL) == 0;
}

static const char *faults(void)
{
    char *p = pages(2);
    CHECK(p != MAP_FAILED && munmap(p + PAGE, PAGE) == 0 && mprotect(p, PAGE, PROT_READ) == 0);
    CHECK(handle(SIGSEGV, note_and_jump, 0));
    if (!sigsetjmp(back, 1))
        *(volatile char *)(p + 5) = 1;
    CHECK(seen == SIGSEGV && seen_code == SEGV_ACCERR && seen_address == p + 5);
    seen = 0;
    if (!sigsetjmp(back, 1))
        (void)*(volatile char *)(p + PAGE + 9);
    CHECK(seen == SIGSEGV && seen_code == SEGV_MAPERR && seen_address == p + PAGE + 9);
    return NULL;
}

static const char *instructions(void)
{
    CHECK(handle(SIGILL, note_and_jump, 0));
    if (!sigsetjmp(back, 1)) {
#ifdef __x86_64__
        __asm__ volatile("ud2");
#elif defined(__riscv)
        __asm__ volatile("unimp");
#else
        __asm__ volatile(".inst 0");
#endif
    }
    CHECK(seen == SIGILL && seen_address);
#ifdef __x86_64__
    CHECK(handle(SIGFPE, note_and_jump, 0));
    if (!sigsetjmp(back, 1))
        __asm__ volatile("xor %%edx, %%edx\n\txor %%ecx, %%ecx\n\tdiv %%ecx"
                         : : : "eax", "ecx", "edx");
    CHECK(seen == SIGFPE && seen_code == FPE_INTDIV);
    CHECK(handle(SIGTRAP, note_and_jump, 0));
    if (!sigsetjmp(back, 1))
        __asm__ volatile("int3");
    CHECK(seen == SIGTRAP);
#endif
    return NULL;
}

static const char *bus_error(void)
{
    int fd;
    CHECK(make_file("f", "x") && (fd = open("f", O_RDONLY)) >= 0);
    char *p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(p != MAP_FAILED && handle(SIGBUS, note_and_jump, 0));
    if (!sigsetjmp(back, 1))
        (void)*(volatile char *)(p + PAGE);
    CHECK(seen == SIGBUS && seen_code == BUS_ADRERR && seen_address == p + PAGE);
    return NULL;
}

static volatile pid_t seen_pid;
static void note_sender(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen = number;
    seen_code = info->si_code;
    seen_pid = info->si_pid;
}

static const char *sends(void)
{
    CHECK(handle(SIGUSR1, note_sender, 0) && kill(getpid(), SIGUSR1) == 0);
    CHECK(seen == SIGUSR1 && seen_code == SI_USER && seen_pid == getpid());
    CHECK(syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1) == 0 && seen_code == SI_TKILL);
    CHECK(kill(getpid(), 0) == 0);
    FAILS(ESRCH, kill(1 << 22, 0));
    FAILS(EINVAL, kill(getpid(), 65));
    FAILS(EINVAL, syscall(SYS_tgkill, getpid(), -1, SIGUSR1));
    FAILS(ESRCH, syscall(SYS_tgkill, getpid(), 1 << 22, SIGUSR1));
    return NULL;
}

static const char *actions(void)
{
    struct sigaction old;
    CHECK(handle_simply(SIGUSR1, SA_RESTART) && sigaction(SIGUSR1, NULL, &old) == 0);
    CHECK(old.sa_handler == note && (old.sa_flags & SA_RESTART));
    struct sigaction action = {.sa_handler = SIG_IGN};
    FAILS(EINVAL, sigaction(SIGKILL, &action, NULL));
    FAILS(EINVAL, syscall(SYS_rt_sigaction, 0, &action, NULL, 8));
    FAILS(EINVAL, syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 4));
    CHECK(handle_simply(SIGUSR1, SA_RESETHAND) && raise(SIGUSR1) == 0 && seen == SIGUSR1);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && raise(SIGUSR2) == 0);
    return NULL;
}

static const char *masks(void)
{
    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(handle_simply(SIGUSR1, 0) && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0 && seen == 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, &old) == 0 && seen == SIGUSR1);
    CHECK(sigismember(&old, SIGUSR1) == 1);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 0);
    FAILS(EINVAL, syscall(SYS_rt_sigprocmask, 77, &set, NULL, 8));
    FAILS(EINVAL, syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4));
    /* SIGKILL stays deliverable. */
    sigfillset(&set);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && sigprocmask(SIG_SETMASK, NULL, &old) == 0);
    CHECK(sigismember(&old, SIGKILL) == 0 && sigismember(&old, SIGTERM) == 1);
    return NULL;
}

static volatile sig_atomic_t blocked_inside;
static void look_at_mask(int number)
{
    sigset_t now;
    sigprocmask(SIG_SETMASK, NULL, &now);
    blocked_inside = sigismember(&now, number) + 2 * sigismember(&now, SIGUSR2);
}

static const char *masks_of_handlers(void)
{
    struct sigaction action = {.sa_handler = look_at_mask};
    sigset_t now;
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && blocked_inside == 3);
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) == 0);
    action.sa_flags = SA_NODEFER;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0 && blocked_inside == 2);
    return NULL;
}

static pid_t kill_later(int number)
{
    pid_t parent = getpid(), child = fork();
    if (!child) {
        sleep_ms(30);
        _exit(kill(parent, number) != 0);
    }
    return child;
}

static const char *suspends(void)
{
    sigset_t none, set;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(handle_simply(SIGUSR1, 0) && sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(kill_later(SIGUSR1) > 0);
    FAILS(EINTR, sigsuspend(&none));
    CHECK(seen == SIGUSR1 && sigprocmask(SIG_SETMASK, NULL, &set) == 0);
    CHECK(sigismember(&set, SIGUSR1) == 1 && wait(NULL) > 0);
    return NULL;
}

static const char *timed_wait(void)
{
    sigset_t set;
    siginfo_t info;
    struct timespec soon = {0, 10000000};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    FAILS(EAGAIN, sigtimedwait(&set, &info, &soon));
    CHECK(raise(SIGUSR1) == 0 && sigtimedwait(&set, &info, &soon) == SIGUSR1);
    CHECK(kill_later(SIGUSR1) > 0 && sigwaitinfo(&set, &info) == SIGUSR1 && wait(NULL) > 0);
    return NULL;
}

static volatile uintptr_t stack_inside;
static void note_stack(int number)
{
    char here;
    seen = number;
    stack_inside = (uintptr_t)&here;
}

static const char *alternate_stack(void)
{
    size_t bytes = 64 * KIB;
    char *room = pages(bytes / PAGE);
    stack_t stack = {.ss_sp = room, .ss_size = bytes}, old;
    struct sigaction action = {.sa_handler = note_stack, .sa_flags = SA_ONSTACK};
    CHECK(room != MAP_FAILED && sigaltstack(&stack, NULL) == 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
    CHECK(stack_inside >= (uintptr_t)room && stack_inside < (uintptr_t)room + bytes);
    CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == room && old.ss_flags == 0);
    stack.ss_size = 100;
    FAILS(ENOMEM, sigaltstack(&stack, NULL));
    stack = (stack_t){.ss_flags = 77, .ss_size = bytes, .ss_sp = room};
    FAILS(EINVAL, sigaltstack(&stack, NULL));
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0 && sigaltstack(NULL, &old) == 0);
    CHECK(old.ss_flags == SS_DISABLE);
    return NULL;
}

static const char *interrupts(void)
{
    int ends[2];
    char byte;
    struct timespec wait_long = {10, 0}, rest = {0, 0};
    CHECK(pipe(ends) == 0 && handle_simply(SIGUSR1, 0));
    CHECK(kill_later(SIGUSR1) > 0);
    FAILS(EINTR, nanosleep(&wait_long, &rest));
    CHECK(rest.tv_sec >= 5 && rest.tv_sec < 10 && wait(NULL) > 0);
    CHECK(kill_later(SIGUSR1) > 0);
    FAILS(EINTR, read(ends[0], &byte, 1));
    CHECK(wait(NULL) > 0);
    return NULL;
}

/* With SA_RESTART, a read that was interrupted goes on and gets what comes later. */
static const char *restarts(void)
{
    int ends[2];
    char byte = 0;
    CHECK(pipe(ends) == 0 && handle_simply(SIGUSR1, SA_RESTART));
    pid_t parent = getpid(), child = fork();
    if (!child) {
        sleep_ms(30);
        kill(parent, SIGUSR1);
        sleep_ms(30);
        _exit(write(ends[1], "r", 1) != 1);
    }
    CHECK(read(ends[0], &byte, 1) == 1 && byte == 'r' && seen == SIGUSR1);
    CHECK(waitpid(child, NULL, 0) == child);
    return NULL;
}

static const char *child_signal(void)
{
    CHECK(handle(SIGCHLD, note_sender, SA_RESTART));
    pid_t child = fork();
    if (!child)
        _exit(4);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(seen == SIGCHLD && seen_code == CLD_EXITED && seen_pid == child);
    return NULL;
}

/* A process that ignores SIGCHLD has no zombies. */
static const char *ignored_children(void)
{
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    pid_t child = fork();
    if (!child)
        _exit(4);
    FAILS(ECHILD, waitpid(child, NULL, 0));
    return NULL;
}

/* Registers and vector registers survive a handler that uses them. */
static void use_vectors(int number)
{
    volatile double x = 1.5;
    for (int i = 0; i < 100; i++)
        x = x * 1.25 - 0.1;
    seen = number;
}

static const char *vectors_survive(void)
{
    double value = 3.25, result;
    CHECK(signal(SIGUSR1, use_vectors) != SIG_ERR);
    pid_t self = getpid();
#ifdef __x86_64__
    long number = SYS_kill;
    __asm__ volatile("movsd %[in], %%xmm15\n\tsyscall\n\tmovsd %%xmm15, %[out]"
                     : [out] "=m"(result), "+a"(number)
                     : [in] "m"(value), "D"((long)self), "S"((long)SIGUSR1)
                     : "xmm15", "rcx", "r11", "memory");
#elif defined(__riscv)
    register long a7 __asm__("a7") = SYS_kill;
    register long a0 __asm__("a0") = self;
    register long a1 __asm__("a1") = SIGUSR1;
    __asm__ volatile("fld fs11, %[in]\n\tecall\n\tfsd fs11, %[out]"
                     : [out] "=m"(result), "+r"(a0)
                     : [in] "m"(value), "r"(a7), "r"(a1)
                     : "fs11", "memory");
#else
    register long x8 __asm__("x8") = SYS_kill;
    register long x0 __asm__("x0") = self;
    register long x1 __asm__("x1") = SIGUSR1;
    __asm__ volatile("ldr d31, %[in]\n\tsvc #0\n\tstr d31, %[out]"
                     : [out] "=m"(result), "+r"(x0)
                     : [in] "m"(value), "r"(x8), "r"(x1)
                     : "v31", "memory");
#endif
    CHECK(seen == SIGUSR1 && result == value);
    return NULL;
}

const struct abi_case signal_cases[] = {
    {"SIGSEGV with address and code", faults},
    {"SIGILL, SIGFPE and SIGTRAP", instructions},
    {"SIGBUS", bus_error},
    {"kill and tgkill", sends},
    {"sigaction", actions},
    {"sigprocmask and sigpending", masks},
    {"masks of handlers", masks_of_handlers},
    {"sigsuspend", suspends},
    {"sigtimedwait", timed_wait},
    {"sigaltstack", alternate_stack},
    {"EINTR", interrupts},
    {"SA_RESTART", restarts},
    {"SIGCHLD", child_signal},
    {"SIGCHLD that is ignored", ignored_children},
    {"vector registers over a handler", vectors_survive},
    {NULL, NULL},
};

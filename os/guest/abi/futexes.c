/* Threads and futexes. */
#include "abi.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

static const char *refuses(void)
{
    uint32_t word = 5;
    struct timespec soon = {0, 10000000}, wrong = {0, 1000000000};
    FAILS(EAGAIN, futex(&word, FUTEX_WAIT_PRIVATE, 4, NULL));
    uint64_t start = now_ns();
    FAILS(ETIMEDOUT, futex(&word, FUTEX_WAIT_PRIVATE, 5, &soon));
    CHECK(now_ns() - start >= 10000000);
    FAILS(EINVAL, futex(&word, FUTEX_WAIT_PRIVATE, 5, &wrong));
    FAILS(EINVAL, futex((uint32_t *)((char *)&word + 1), FUTEX_WAIT_PRIVATE, 5, &soon));
    FAILS(EFAULT, futex((uint32_t *)0x1000, FUTEX_WAIT, 5, &soon));
    FAILS(ENOSYS, futex(&word, 99, 5, NULL));
    CHECK(futex(&word, FUTEX_WAKE_PRIVATE, 1, NULL) == 0);
    return NULL;
}

static uint32_t gate;
static void *waiter(void *argument)
{
    (void)argument;
    while (__atomic_load_n(&gate, __ATOMIC_SEQ_CST) == 0)
        futex(&gate, FUTEX_WAIT_PRIVATE, 0, NULL);
    return (void *)7;
}

static const char *wakes(void)
{
    pthread_t threads[3];
    void *result;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, waiter, NULL) == 0);
    sleep_ms(20);
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(&gate, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL) >= 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], &result) == 0 && result == (void *)7);
    return NULL;
}

/* A futex in shared memory wakes another process, at whatever address that process maps it. */
static const char *between_processes(void)
{
    int status;
    uint32_t *word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(word != MAP_FAILED);
    pid_t child = fork();
    if (!child) {
        struct timespec patience = {10, 0};
        while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
            if (futex(word, FUTEX_WAIT, 0, &patience) && errno == ETIMEDOUT)
                _exit(1);
        _exit(0);
    }
    sleep_ms(20);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(word, FUTEX_WAKE, 1, NULL) >= 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return NULL;
}

/* Waiters stay queued when they are moved to the same word. */
static const char *requeues_to_itself(void)
{
    pthread_t threads[2];
    gate = 0;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, waiter, NULL) == 0);
    sleep_ms(100);
    CHECK(syscall(SYS_futex, &gate, FUTEX_REQUEUE_PRIVATE, 0, 1, &gate, 0) == 1);
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(&gate, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL) == 2);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return NULL;
}

/* A process with one thread that waits at `gate`. The child does not return. */
static pid_t start_sleeper(bool wakes)
{
    pthread_t thread;
    pid_t child = fork();
    if (child)
        return child;
    gate = 0;
    if (pthread_create(&thread, NULL, waiter, NULL))
        _exit(1);
    sleep_ms(100);
    if (!wakes)
        for (;;)
            pause();
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    if (futex(&gate, FUTEX_WAKE_PRIVATE, 1, NULL) != 1 || pthread_join(thread, NULL))
        _exit(2);
    _exit(0);
}

/* A sleeper that was killed is not woken in place of another. */
static const char *killed_sleepers(void)
{
    int status;
    for (int i = 0; i < 3; i++) {
        pid_t child = start_sleeper(false);
        sleep_ms(200);
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
        child = start_sleeper(true);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counter;

static void *count_up(void *argument)
{
    (void)argument;
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static const char *mutexes(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, count_up, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(counter == 40000);
    return NULL;
}

/* Two threads take turns: each waits for the other's parity. */
static void *take_turns(void *argument)
{
    long mine = (long)argument;
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        while (counter % 2 != mine)
            pthread_cond_wait(&changed, &mutex);
        counter++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static const char *conditions(void)
{
    pthread_t other;
    CHECK(pthread_create(&other, NULL, take_turns, (void *)1) == 0);
    take_turns((void *)0);
    CHECK(pthread_join(other, NULL) == 0 && counter == 1000);
    return NULL;
}

static __thread int own = 5;
static pid_t thread_id;
static void *look(void *argument)
{
    int first = own;
    own = 6;
    thread_id = (pid_t)syscall(SYS_gettid);
    return (void *)(long)(first == 5 && own == 6 && argument == (void *)3 && getpid() != thread_id);
}

static const char *thread_identity(void)
{
    pthread_t thread;
    void *good;
    CHECK(pthread_create(&thread, NULL, look, (void *)3) == 0);
    CHECK(pthread_join(thread, &good) == 0 && good && own == 5 && thread_id != getpid());
    return NULL;
}

static void *exits_all(void *argument)
{
    (void)argument;
    sleep_ms(10);
    _exit(6);
}

static void group_exits(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exits_all, NULL);
    for (;;)
        pause();
}

static const char *exit_of_all(void)
{
    int status = status_of(group_exits);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
    return NULL;
}

static volatile uintptr_t nowhere = 16;
static void *dies(void *argument)
{
    (void)argument;
    *(volatile char *)nowhere = 1;
    return NULL;
}

static void thread_faults(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, dies, NULL);
    for (;;)
        pause();
}

static const char *death_of_all(void)
{
    int status = status_of(thread_faults);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    return NULL;
}

static const char *clone_refuses(void)
{
    FAILS(EINVAL, syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
    FAILS(EINVAL, syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0));
    return NULL;
}

static const char *tid_address(void)
{
    int word = 1;
    CHECK(syscall(SYS_set_tid_address, &word) == syscall(SYS_gettid));
    return NULL;
}

/* struct futex_waitv, and the call (linux/futex.h). */
struct word {
    uint64_t expected, address;
    uint32_t flags, reserved;
};

static long wait_for(struct word *words, unsigned count, unsigned flags, struct timespec *until)
{
    return syscall(449, words, count, flags, until, CLOCK_MONOTONIC);
}

static uint32_t *several;

static void *wake_second(void *unused)
{
    sleep_ms(20);
    several[1] = 1;
    syscall(SYS_futex, &several[1], FUTEX_WAKE, 1, NULL, NULL, 0);
    return unused;
}

static const char *several_words(void)
{
    uint32_t values[2] = {0, 0};
    struct word words[2];
    struct timespec until;
    pthread_t thread;
    several = values;
    for (int at = 0; at < 2; at++)
        words[at] = (struct word){0, (uintptr_t)&values[at], 2 | FUTEX_PRIVATE_FLAG, 0};
    FAILS(EINVAL, wait_for(words, 0, 0, NULL));
    FAILS(EINVAL, wait_for(words, 129, 0, NULL));
    FAILS(EINVAL, wait_for(words, 2, 1, NULL));
    FAILS(EINVAL, wait_for(NULL, 1, 0, NULL));
    FAILS(EFAULT, wait_for((void *)8, 1, 0, NULL));
    words[1].reserved = 1;
    FAILS(EINVAL, wait_for(words, 2, 0, NULL));
    words[1].reserved = 0;
    words[1].flags = FUTEX_PRIVATE_FLAG;
    FAILS(EINVAL, wait_for(words, 2, 0, NULL));
    words[1].flags = 2;
    words[1].expected = 5;
    FAILS(EAGAIN, wait_for(words, 2, 0, NULL));
    words[1].expected = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 10000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    FAILS(ETIMEDOUT, wait_for(words, 2, 0, &until));
    CHECK(pthread_create(&thread, NULL, wake_second, NULL) == 0);
    CHECK(wait_for(words, 2, 0, NULL) == 1 && pthread_join(thread, NULL) == 0);
    return NULL;
}

const struct abi_case futex_cases[] = {
    {"futex refuses", refuses},
    {"futex wakes threads", wakes},
    {"futex between processes", between_processes},
    {"pthread mutex", mutexes},
    {"pthread cond", conditions},
    {"threads have their own", thread_identity},
    {"exit_group ends all threads", exit_of_all},
    {"a fault ends all threads", death_of_all},
    {"clone refuses", clone_refuses},
    {"set_tid_address", tid_address},
    {"futex requeues to itself", requeues_to_itself},
    {"futex and killed processes", killed_sleepers},
    {"futex of several words", several_words},
    {NULL, NULL},
};

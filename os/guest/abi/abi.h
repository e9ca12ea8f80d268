/* Shared by the cases of abicheck. A case is a function that returns NULL, or the reason it failed;
 * it runs in a child of its own, in an empty directory of its own. */
#ifndef ABI_H
#define ABI_H

#include "../common.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

typedef const char *abi_test(void);

struct abi_case {
    const char *name;
    abi_test *test;
};

/* Each table ends with a name that is NULL. */
extern const struct abi_case file_cases[], path_cases[], poll_cases[], map_cases[], remap_cases[],
    memory_file_cases[], shown_cases[], advice_cases[], process_cases[], signal_cases[],
    futex_cases[], time_cases[], id_cases[], fault_cases[], guard_cases[],
    group_cases[], query_cases[], swap_cases[], other_cases[], user_cases[],
    event_cases[], segment_cases[], error_cases[], watched_cases[], protected_cases[], changed_cases[],
    reserved_cases[], socket_cases[], vdso_cases[], hole_cases[],
    limit_cases[], setting_cases[], duty_cases[],
    semaphore_cases[], watched_reserved_cases[];

/* Sets the number of reserved folios of 2 MiB; whether there are as many. */
bool set_pool(long folios);

/* The text of a failed condition; for CHECK and FAILS. */
const char *why(int line, const char *what, long result, int wanted_errno);

/* The condition must hold. It may look at errno only after a call of its own. */
#define CHECK(condition) \
    do { \
        errno = 0; \
        if (!(condition)) \
            return why(__LINE__, #condition, 0, 0); \
    } while (0)

/* The call must return -1 with this errno. */
#define FAILS(wanted, call) \
    do { \
        errno = 0; \
        long result_ = (long)(call); \
        if (result_ != -1 || errno != (wanted)) \
            return why(__LINE__, #call, result_, (wanted)); \
    } while (0)

/* Runs `test` in a child and returns its wait status; -1 if there is none. */
static inline int status_of(void (*test)(void))
{
    int status = -1;
    pid_t child = fork();
    if (!child) {
        test();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

/* Fresh pages with all rights to read and write, or MAP_FAILED. */
static inline char *pages(size_t count)
{
    return mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Writes a whole file; false if that fails. */
static inline bool make_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return false;
    size_t length = strlen(text);
    bool good = write(fd, text, length) == (ssize_t)length;
    return close(fd) == 0 && good;
}

/* Sleeps for some milliseconds, however often it is interrupted. */
static inline void sleep_ms(long ms)
{
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) && errno == EINTR)
        continue;
}

#endif

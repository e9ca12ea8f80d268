/* oom: eats memory in a tree of forks until the system refuses, by ENOMEM or by SIGKILL, and checks
 * each time that the system lives on: memory is free again, and fork works. */
#include "common.h"

#include <signal.h>
#include <sys/wait.h>

enum { STEP_BYTES = 4 << 20, REFUSED = 7, ENOUGH = 8, FORKS = 3 };

/* Takes memory and writes it until the system refuses; forks now and then, so that the pages are
 * shared and then copied. Does not return. */
static void eat(size_t limit, int forks)
{
    size_t taken = 0;
    bool is_parent = false;
    char *last = NULL;
    while (taken < limit) {
        char *p = mmap(NULL, STEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
        if (p == MAP_FAILED)
            _exit(REFUSED);
        touch_pages(p, STEP_BYTES, 1);
        if (last)
            touch_pages(last, STEP_BYTES, 2); /* A copy, if a child shares it. */
        last = p;
        taken += STEP_BYTES;
        if (forks && taken % ((size_t)64 << 20) == 0) {
            pid_t child = fork();
            if (child < 0)
                _exit(REFUSED);
            is_parent = is_parent || child;
            forks--;
        }
    }
    for (int status; is_parent && wait(&status) > 0;)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != ENOUGH)
            _exit(REFUSED);
    _exit(ENOUGH);
}

/* The system lives: a child can be made, and finds 16 MiB of zeroed memory. */
static void check_alive(void)
{
    pid_t child = fork();
    if (child < 0)
        failed("fork after memory ran out");
    if (!child) {
        size_t bytes = 16 * MIB;
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            _exit(1);
        for (size_t at = 0; at < bytes; at += PAGE) {
            if (p[at])
                _exit(2);
            p[at] = 1;
        }
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status)
        end(1, "after memory ran out, a child ended with status %#x.", status);
}

int main(int argc, char **argv)
{
    program_name = "oom";
    if (argc > 3)
        end(2, "usage: oom [ROUNDS [LIMIT_MIB]]");
    long rounds = argc > 1 ? number(argv[1], 1, 1000) : 3;
    /* Without a limit: as much as there is. Each child of the tree may take as much again. */
    size_t limit = argc > 2 ? (size_t)number(argv[2], 4, 1 << 20) * MIB : SIZE_MAX / 2;
    for (long round = 1; round <= rounds; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (child < 0)
            failed("fork");
        if (!child) {
            setpgid(0, 0);
            eat(limit, FORKS);
        }
        int status;
        if (waitpid(child, &status, 0) != child)
            failed("waitpid");
        /* Its children may eat on. End them, and wait until their memory is back. */
        kill(-child, SIGKILL);
        const char *how = WIFSIGNALED(status) ? "was killed"
            : WEXITSTATUS(status) == REFUSED ? "was told that there is no memory"
            : "took all it wanted";
        if (WIFSIGNALED(status) && WTERMSIG(status) != 9)
            end(1, "the eater died of signal %d.", WTERMSIG(status));
        struct timespec pause = {1, 0};
        nanosleep(&pause, NULL);
        check_alive();
        printf("oom: round %ld: the eater %s; the system lives.\n", round, how);
    }
    return 0;
}

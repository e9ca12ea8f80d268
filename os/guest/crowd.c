/* crowd COUNT: children that are all alive at once, more than a CPU has tags for address spaces.
 * Each keeps words of its own in memory that it got by fork, and wakes up among all others. A CPU
 * that mixes two spaces up shows one child another's words. */
#include "common.h"

#include <sys/wait.h>

#define WORDS 3

/* One in each of a few pages, so that they are in as many entries of the TLB. */
static volatile long words[WORDS][1024];
static long count;

static void set_words(long value)
{
    for (int i = 0; i < WORDS; i++)
        words[i][0] = value + i;
}

static bool are_words(long value)
{
    for (int i = 0; i < WORDS; i++)
        if (words[i][0] != value + i)
            return false;
    return true;
}

/* Waits for the end of the pipe, which has no bytes. */
static void await(int pipe)
{
    char byte;
    if (read(pipe, &byte, 1) != 0)
        _exit(3);
}

static int child(long self, const int *gates)
{
    if (!are_words(-1))
        return 1;
    set_words(self);
    for (int gate = 0; gate < 2; gate++) {
        await(gates[2 * gate]);
        if (!are_words(self))
            return 1;
        self += count;
        set_words(self);
    }
    return 0;
}

int main(int argc, char **argv)
{
    program_name = "crowd";
    if (argc != 2)
        end(2, "usage: crowd COUNT");
    count = number(argv[1], 1, 1 << 20);
    int gates[4];
    if (pipe(gates) || pipe(gates + 2))
        failed("pipe");
    pid_t *all = calloc((size_t)count, sizeof *all);
    if (!all)
        failed("calloc");
    set_words(-1);
    for (long i = 0; i < count; i++) {
        all[i] = fork();
        if (all[i] < 0) {
            printf("FAILED fork %ld: %s\n", i, strerror(errno));
            return 1;
        }
        if (all[i] == 0) {
            close(gates[1]);
            close(gates[3]);
            _exit(child(i * 2, gates));
        }
    }
    printf("ok %ld children alive\n", count);
    close(gates[1]);
    close(gates[3]);
    long bad = 0;
    for (long i = 0; i < count; i++) {
        int status;
        if (waitpid(all[i], &status, 0) != all[i])
            failed("waitpid");
        bad += status != 0;
    }
    if (bad || !are_words(-1)) {
        printf("FAILED %ld children have lost their words\n", bad);
        return 1;
    }
    printf("ok each has its own words\n");
    return 0;
}

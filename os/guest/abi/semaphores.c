/* Semaphores of System V. */
#include "abi.h"

#include <grp.h>
#include <sys/ipc.h>
#include <sys/sem.h>

enum { USER = 65534, KEY = 0x51aa };

union value {
    int value;
    struct semid_ds *about;
    unsigned short *all;
};

static int get(int id, int number) { return semctl(id, number, GETVAL); }

static int set(int id, int number, int value)
{
    return semctl(id, number, SETVAL, (union value){.value = value});
}

static int act(int id, int number, int change, int flags)
{
    struct sembuf one = {number, change, flags};
    return semop(id, &one, 1);
}

static const char *values(void)
{
    int id = semget(IPC_PRIVATE, 3, 0600);
    unsigned short all[3] = {4, 5, 6};
    CHECK(id >= 0 && get(id, 0) == 0 && set(id, 1, 7) == 0 && get(id, 1) == 7);
    CHECK(semctl(id, 0, SETALL, (union value){.all = all}) == 0 && get(id, 2) == 6);
    all[2] = 0;
    CHECK(semctl(id, 0, GETALL, (union value){.all = all}) == 0 && all[2] == 6);
    CHECK(act(id, 0, -3, 0) == 0 && get(id, 0) == 1 && act(id, 0, 2, 0) == 0 && get(id, 0) == 3);
    CHECK(semctl(id, 0, GETPID) == getpid());
    FAILS(EAGAIN, act(id, 0, -4, IPC_NOWAIT));
    FAILS(EAGAIN, act(id, 0, 0, IPC_NOWAIT));
    FAILS(EFBIG, act(id, 3, 1, 0));
    FAILS(ERANGE, act(id, 0, 32767, 0));
    FAILS(ERANGE, set(id, 0, 32768));
    FAILS(ERANGE, set(id, 0, -1));
    FAILS(EINVAL, set(id, 3, 1));
    FAILS(EINVAL, get(id, 3));
    FAILS(EINVAL, get(id, -1));
    /* All operations of a call, or none. */
    struct sembuf two[2] = {{1, 1, 0}, {2, -100, IPC_NOWAIT}};
    FAILS(EAGAIN, semop(id, two, 2));
    CHECK(get(id, 1) == 5);
    FAILS(EINVAL, semop(id, two, 0));
    FAILS(E2BIG, semop(id, two, 501));
    FAILS(EFAULT, semop(id, (void *)8, 1));
    FAILS(EINVAL, semop(-1, two, 1));
    FAILS(EINVAL, semctl(id, 0, 77));
    FAILS(EFAULT, semctl(id, 0, IPC_STAT, (union value){.about = (void *)8}));
    CHECK(semctl(id, 0, IPC_RMID) == 0);
    FAILS(EINVAL, semctl(id, 0, GETVAL));
    FAILS(EINVAL, semop(id, two, 1));
    return NULL;
}

static const char *keys(void)
{
    key_t key = KEY + getpid();
    struct semid_ds about;
    FAILS(ENOENT, semget(key, 1, 0));
    FAILS(EINVAL, semget(key, 0, IPC_CREAT | 0600));
    FAILS(EINVAL, semget(key, -1, IPC_CREAT | 0600));
    FAILS(EINVAL, semget(key, 32001, IPC_CREAT | 0600));
    int id = semget(key, 2, IPC_CREAT | IPC_EXCL | 0640);
    CHECK(id >= 0 && semget(key, 0, 0) == id && semget(key, 2, IPC_CREAT) == id);
    FAILS(EEXIST, semget(key, 2, IPC_CREAT | IPC_EXCL));
    FAILS(EINVAL, semget(key, 3, 0));
    CHECK(semctl(id, 0, IPC_STAT, (union value){.about = &about}) == 0);
    CHECK(about.sem_nsems == 2 && about.sem_perm.mode == 0640 && about.sem_perm.__key == key);
    CHECK(about.sem_otime == 0 && about.sem_ctime > 0 && act(id, 0, 1, 0) == 0);
    CHECK(semctl(id, 0, IPC_STAT, (union value){.about = &about}) == 0 && about.sem_otime > 0);
    about.sem_perm.mode = 0600;
    CHECK(semctl(id, 0, IPC_SET, (union value){.about = &about}) == 0);
    pid_t child = fork();
    if (!child) {
        bool is_user = setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0;
        bool good = semget(key, 2, 0600) == -1 && errno == EACCES;
        good = good && act(id, 0, 1, 0) == -1 && errno == EACCES;
        good = good && get(id, 0) == -1 && errno == EACCES;
        good = good && set(id, 0, 1) == -1 && errno == EACCES;
        good = good && semctl(id, 0, IPC_RMID) == -1 && errno == EPERM;
        _exit(!(is_user && good));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && semctl(id, 0, IPC_RMID) == 0);
    FAILS(ENOENT, semget(key, 1, 0));
    return NULL;
}

static void ignore(int number) { (void)number; }

static const char *waits(void)
{
    int id = semget(IPC_PRIVATE, 2, 0600), status;
    CHECK(id >= 0);
    pid_t child = fork();
    if (!child)
        _exit(act(id, 0, -2, 0) != 0 || act(id, 1, 0, 0) != 0);
    while (semctl(id, 0, GETNCNT) != 1)
        sleep_ms(1);
    CHECK(set(id, 1, 1) == 0 && act(id, 0, 1, 0) == 0 && act(id, 0, 1, 0) == 0);
    while (semctl(id, 1, GETZCNT) != 1)
        sleep_ms(1);
    CHECK(act(id, 1, -1, 0) == 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(get(id, 0) == 0);
    /* A set that is removed, and a signal, end a wait. */
    child = fork();
    if (!child)
        _exit(act(id, 0, -1, 0) != -1 || errno != EIDRM);
    pid_t other = fork();
    if (!other) {
        struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
        sigaction(SIGUSR1, &action, NULL);
        _exit(act(id, 0, -1, 0) != -1 || errno != EINTR);
    }
    while (semctl(id, 0, GETNCNT) != 2)
        sleep_ms(1);
    CHECK(kill(other, SIGUSR1) == 0 && waitpid(other, &status, 0) == other && status == 0);
    CHECK(semctl(id, 0, IPC_RMID) == 0 && waitpid(child, &status, 0) == child && status == 0);
    return NULL;
}

static const char *times_and_ends(void)
{
    int id = semget(IPC_PRIVATE, 1, 0600), status;
    struct sembuf take = {0, -1, 0};
    struct timespec soon = {0, 20000000}, wrong = {0, -1};
    uint64_t start = now_ns();
    CHECK(id >= 0);
    FAILS(EAGAIN, semtimedop(id, &take, 1, &soon));
    CHECK(now_ns() - start >= 20000000);
    FAILS(EINVAL, semtimedop(id, &take, 1, &wrong));
    /* The end of a process undoes what it asked for. */
    CHECK(set(id, 0, 5) == 0);
    pid_t child = fork();
    if (!child)
        _exit(act(id, 0, -3, SEM_UNDO) != 0 || act(id, 0, 1, SEM_UNDO) != 0 || get(id, 0) != 3);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && get(id, 0) == 5);
    CHECK(semctl(id, 0, IPC_RMID) == 0);
    return NULL;
}

const struct abi_case semaphore_cases[] = {{"semaphore_values", values},
                                           {"semaphore_keys", keys},
                                           {"semaphore_waits", waits},
                                           {"semaphore_ends", times_and_ends},
                                           {NULL, NULL}};

/* Shared memory of System V. */
#include "abi.h"

#include <grp.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>

enum { USER = 65534, KEY = 0x51a9 };

static const char *attach_and_detach(void)
{
    int id = shmget(IPC_PRIVATE, 3 * PAGE - 100, IPC_CREAT | 0600);
    struct shmid_ds about;
    CHECK(id >= 0);
    char *p = shmat(id, NULL, 0), *q = shmat(id, NULL, SHM_RDONLY);
    CHECK(p != (char *)-1 && q != (char *)-1 && p != q && p[0] == 0);
    p[2 * PAGE] = 7;
    CHECK(q[2 * PAGE] == 7 && shmctl(id, IPC_STAT, &about) == 0);
    CHECK(about.shm_nattch == 2 && about.shm_segsz == 3 * PAGE - 100);
    CHECK(about.shm_perm.mode == 0600 && about.shm_cpid == getpid() && about.shm_lpid == getpid());
    FAILS(EACCES, mprotect(q, PAGE, PROT_READ | PROT_WRITE));
    FAILS(EINVAL, shmdt(p + PAGE));
    FAILS(EINVAL, shmdt(p + 1));
    CHECK(shmdt(q) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(shmctl(id, IPC_STAT, &about) == 0 && about.shm_perm.mode == (0600 | SHM_DEST));
    pid_t child = fork();
    if (!child) {
        p[0] = 9;
        _exit(shmdt(p));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && p[0] == 9);
    CHECK(shmdt(p) == 0);
    FAILS(EINVAL, shmdt(p));
    FAILS(EINVAL, shmctl(id, IPC_STAT, &about));
    return NULL;
}

static const char *addresses(void)
{
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    char *room = pages(4);
    CHECK(id >= 0 && room != MAP_FAILED);
    FAILS(EINVAL, shmat(id, room, 0));
    FAILS(EINVAL, shmat(id, room + 1, 0));
    FAILS(EINVAL, shmat(id, NULL, SHM_REMAP));
    FAILS(EINVAL, shmat(-1, NULL, 0));
    CHECK(shmat(id, room, SHM_REMAP) == room && munmap(room + PAGE, PAGE) == 0);
    CHECK(shmat(id, room + PAGE + 5, SHM_RND) == room + PAGE);
    CHECK(shmdt(room) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
    return NULL;
}

static const char *keys(void)
{
    key_t key = KEY + getpid();
    FAILS(ENOENT, shmget(key, PAGE, 0));
    FAILS(EINVAL, shmget(key, 0, IPC_CREAT | 0600));
    int id = shmget(key, PAGE, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(id >= 0 && shmget(key, PAGE, 0) == id && shmget(key, 0, 0) == id);
    FAILS(EEXIST, shmget(key, PAGE, IPC_CREAT | IPC_EXCL | 0600));
    FAILS(EINVAL, shmget(key, PAGE + 1, 0));
    FAILS(EINVAL, shmctl(id, 77, NULL));
    FAILS(EINVAL, shmctl(-1, IPC_STAT, NULL));
    FAILS(EFAULT, shmctl(id, IPC_STAT, (void *)8));
    struct shmid_ds about = {.shm_perm = {.mode = 0644}};
    CHECK(shmctl(id, IPC_SET, &about) == 0 && shmctl(id, IPC_STAT, &about) == 0);
    CHECK(about.shm_perm.mode == 0644);
    CHECK(shmctl(id, IPC_SET, &(struct shmid_ds){.shm_perm = {.mode = 0600}}) == 0);
    pid_t child = fork();
    if (!child) {
        bool is_user = setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0;
        bool good = shmget(key, PAGE, 0600) == -1 && errno == EACCES;
        good = good && shmat(id, NULL, 0) == (void *)-1 && errno == EACCES;
        good = good && shmctl(id, IPC_STAT, &about) == -1 && errno == EACCES;
        good = good && shmctl(id, IPC_RMID, NULL) == -1 && errno == EPERM;
        _exit(!(is_user && good));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    FAILS(ENOENT, shmget(key, PAGE, 0));
    return NULL;
}

static const char *errors(void)
{
    struct shmid_ds about;
    int id = shmget(IPC_PRIVATE, 8 * PAGE, 0600);
    CHECK(id >= 0 && shmctl(id, IPC_STAT, &about) == 0);
    /* An id of the past, at the same place. */
    FAILS(EINVAL, shmctl(id + (1 << 15), IPC_STAT, &about));
    FAILS(EINVAL, shmctl(id + (1 << 15), IPC_RMID, NULL));
    FAILS(EINVAL, shmat(id + (1 << 15), NULL, 0));
    about.shm_perm.uid = -1;
    FAILS(EINVAL, shmctl(id, IPC_SET, &about));
    FAILS(EFAULT, shmctl(id, IPC_SET, (void *)8));
    CHECK(shmctl(id, SHM_LOCK, NULL) == 0 && shmctl(id, IPC_STAT, &about) == 0);
    CHECK(about.shm_perm.mode == (0600 | SHM_LOCKED) && shmctl(id, SHM_UNLOCK, NULL) == 0);
    struct rlimit few = {4 * PAGE, 4 * PAGE};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &few) == 0 && setgroups(0, NULL) == 0);
    CHECK(setgid(USER) == 0 && setuid(USER) == 0);
    FAILS(EPERM, shmctl(id, SHM_LOCK, NULL));
    FAILS(EPERM, shmctl(id, SHM_UNLOCK, NULL));
    int large = shmget(IPC_PRIVATE, 5 * PAGE, 0600), small = shmget(IPC_PRIVATE, PAGE, 0600);
    CHECK(large >= 0 && small >= 0 && shmctl(small, SHM_LOCK, NULL) == 0);
    FAILS(ENOMEM, shmctl(large, SHM_LOCK, NULL));
    CHECK(shmctl(large, SHM_UNLOCK, NULL) == 0 && shmctl(small, SHM_UNLOCK, NULL) == 0);
    few.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &few) == 0);
    FAILS(EPERM, shmctl(small, SHM_LOCK, NULL));
    CHECK(shmctl(large, IPC_RMID, NULL) == 0 && shmctl(small, IPC_RMID, NULL) == 0);
    return NULL;
}

const struct abi_case segment_cases[] = {
    {"segment_attach", attach_and_detach},
    {"segment_addresses", addresses},
    {"segment_keys", keys},
    {"segment_errors", errors},
    {NULL, NULL}};

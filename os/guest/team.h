/* A team of threads that begin together, for measurements of several threads at once. */
#ifndef TEAM_H
#define TEAM_H

#include "common.h"

#include <pthread.h>

/* The work of one member: `index` of `count`, on `argument`. */
typedef void team_work(int index, int count, void *argument);

struct member {
    pthread_barrier_t *begin;
    team_work *work;
    void *argument;
    int index, count;
    uint64_t started, ended;
};

static void *member_main(void *argument)
{
    struct member *member = argument;
    pthread_barrier_wait(member->begin);
    member->started = now_ns();
    member->work(member->index, member->count, member->argument);
    member->ended = now_ns();
    return NULL;
}

/* Lets `count` threads work; returns the nanoseconds from the first start to the last end. */
static uint64_t team(int count, team_work *work, void *argument)
{
    pthread_barrier_t begin;
    pthread_t threads[64];
    struct member members[64];
    pthread_barrier_init(&begin, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        members[i] = (struct member){&begin, work, argument, i, count, 0, 0};
        int error = pthread_create(&threads[i], NULL, member_main, &members[i]);
        if (error)
            end(1, "pthread_create failed: %s.", strerror(error));
    }
    uint64_t first = UINT64_MAX, last = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        first = members[i].started < first ? members[i].started : first;
        last = members[i].ended > last ? members[i].ended : last;
    }
    pthread_barrier_destroy(&begin);
    return last - first;
}

#endif

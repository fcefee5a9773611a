/* Threads that share rows. Whoever has threads lets each of them `join` a team. */

typedef int Work(const void *task, long begin, long end, long share);

typedef struct {
    Work *work;
    const void *task;
    long rows, share; /* of all, and of one share of them */
    long next, failed;
} Team;

/* Take shares until none is left. */
void join(Team *team) {
    for (long each; (each = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED)) * team->share < team->rows;) {
        const long begin = each * team->share, left = team->rows - begin;
        if (team->work(team->task, begin, begin + (left < team->share ? left : team->share), each))
            __atomic_store_n(&team->failed, 1, __ATOMIC_RELAXED);
    }
}

/* calibrate: how much time one instruction takes by the guest's clock.
 *
 * In a machine that counts instructions (`cargo xtask compare`) the answer must be one nanosecond
 * on every kernel. Where a kernel's clock runs at another rate, all its figures are off by that
 * factor, and a reporter divides by it.
 */
#include "common.h"

/* Both loops are short, so that the time between reading the clock and the loop does not count. */
#define ROUNDS (20ul * 1000 * 1000)
#define FILL_BYTES ((size_t)4 * MIB)

/* Runs exactly 2 * rounds instructions. */
static void loop(unsigned long rounds)
{
#if defined(__x86_64__)
    __asm__ volatile("1: sub $1, %0\n jnz 1b" : "+r"(rounds) : : "cc");
#elif defined(__riscv)
    __asm__ volatile("1: addi %0, %0, -1\n bnez %0, 1b" : "+r"(rounds));
#else
    __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(rounds) : : "cc");
#endif
}

/* Fills memory by the instruction that touch's `clear` and kernels use, where there is one. */
static void fill(char *to, size_t count)
{
#if defined(__x86_64__)
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(1) : "memory");
#else
    memset(to, 1, count);
    __asm__ volatile("" : : "r"(to) : "memory");
#endif
}

int main(int argc, char **argv)
{
    program_name = "calibrate";
    struct options o = options(argc, argv, 64);
    double loops[MAX_ROUNDS], fills[MAX_ROUNDS];
    static char buffer[FILL_BYTES];
    fill(buffer, sizeof buffer);
    for (size_t i = 0; i < o.rounds; i++) {
        uint64_t start = now_ns();
        loop(ROUNDS);
        loops[i] = (double)(now_ns() - start) / (2.0 * ROUNDS);
        start = now_ns();
        fill(buffer, sizeof buffer);
        fills[i] = (double)(now_ns() - start) / sizeof buffer;
    }
    printf("%s size=any instruction %.4f ns\n", program_name, median(loops, o.rounds));
    printf("%s size=any fill %.4f ns/byte\n", program_name, median(fills, o.rounds));
    return 0;
}

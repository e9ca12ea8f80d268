/* Checks that an argument vector arrives byte for byte: `cargo xtask kernel-tests argcheck` passes
 * the arguments below (ODD_WORDS in xtask/src/guest/checks.rs). A command line that is split at
 * spaces, reads quotes or drops empty words would change them. */
#include "common.h"

static const char *const expected[] = {
    "two words",
    "",
    "echo a; echo b",
    "\"double\" 'single' `back`",
    "line\nline\ttab",
    "--",
    "KEY=VALUE",
    "$HOME * \\ \\n",
    " ",
    "\xff\xfe\x80",
    "\xc3\xbc",
    "",
};

#define COUNT ((int)(sizeof expected / sizeof *expected))

int main(int argc, char **argv)
{
    program_name = "argcheck";
    int bad = argc - 1 != COUNT;
    printf("%s argument_count\n", bad ? "FAILED" : "ok");
    for (int i = 0; i < COUNT; i++) {
        bool good = i + 1 < argc && !strcmp(argv[i + 1], expected[i]);
        printf("%s argument_%d\n", good ? "ok" : "FAILED", i + 1);
        bad |= !good;
    }
    return bad;
}

# The checks of a disk, run by a dynamic shell from that disk: `disk.sh`, or `disk.sh bad` where
# block 128 of /test/large and block 5 of /test/program cannot be read. Lines: ok NAME, FAILED NAME.
# The files of /test were made on the host, and /test/sums of all files.

failures=0
check() { # NAME CONDITION...
    name=$1
    shift
    if "$@"; then
        echo "ok $name"
    else
        echo "FAILED $name"
        failures=1
    fi
}

# The command must fail, with this text in its message.
fails_with() { # TEXT COMMAND...
    text=$1
    shift
    said=$(LC_ALL=C "$@" 2>&1 >/dev/null) && return 1
    case $said in
    *"$text"*) return 0 ;;
    esac
    echo "said: $said"
    return 1
}

# Checksums of all files but these two, as the host has them.
sums() { # NAME NAME
    while read -r sum name; do
        [ "$name" = "$1" ] || [ "$name" = "$2" ] || printf '%s  %s\n' "$sum" "$name"
    done </test/sums >/tmp/sums
    sha256sum --quiet -c /tmp/sums
}

# The same by several at once.
many() {
    for number in 1 2 3; do
        sha256sum --quiet -c /test/sums >"/tmp/many.$number" 2>&1 &
    done
    wait
    cat /tmp/many.*
    test -z "$(cat /tmp/many.*)"
}

# Each name that the host knows is found, and no other.
names() {
    find /bin /etc /lib /lib64 /sbin /test /usr -type f ! -path /test/sums 2>&- | sort >/tmp/found
    cut -c 67- /test/sums | sort >/tmp/known
    test -z "$(comm -3 /tmp/known /tmp/found)"
}

# One page of /test/large.
page() { # BLOCK
    dd if=/test/large of=/tmp/page bs=4096 skip="$1" count=1
}

is_eio() { fails_with "Input/output error" "$@"; }
is_readonly() { fails_with "Read-only file system" "$@"; }

check "a dynamic shell runs from the disk" test -n "$PPID"
check "a program found by its interpreter's line" /test/script
check "a link leads to its file" test "$(cat /test/link)" = "the target"
check "a write to the disk is refused" is_readonly touch /test/new
check "so is a removal" is_readonly rm /test/small
check "memory takes a copy" cp /test/small /tmp/small
check "and the copy is right" test "$(cat /tmp/small)" = "some bytes"
check "holes are zeroes" test "$(tr -d '\0' </test/holes | wc -c)" = 9
check "all names are found" names

if [ "$1" = bad ]; then
    check "a bad page is EIO" is_eio page 128
    check "and again" is_eio page 128
    check "the page before it is good" page 127
    check "the page behind it is good" page 129
    check "a read gives the bytes before it" test "$(cat /test/large 2>&- | wc -c)" = 524288
    /test/program >/dev/null 2>&1
    check "a program with a bad page is killed" test $? = 135
    check "mappings of it are right" /test/mapcheck /test/large 128
    check "all other files are whole" sums /test/large /test/program
else
    # First: nothing of the file is in memory yet.
    check "mappings are right" /test/mapcheck /test/large
    check "all files are whole" sums none none
    check "they are with many readers at once" many
    check "the program that a bad page kills runs here" /test/program
fi
exit $failures

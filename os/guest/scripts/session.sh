# session.sh: an afternoon at a shell. Each case prints `ok NAME` or `FAILED NAME: why`.
# Run by busybox's sh, on Linux or on Quire's kernel: `cargo xtask run -- session.sh`.

dir=/tmp/session.$$
bad=0

# check NAME WANTED FOUND
check() {
    if [ "$2" = "$3" ]; then
        echo "ok $1"
    else
        echo "FAILED $1: wanted \`$2\`, found \`$3\`"
        bad=$((bad + 1))
    fi
}

mkdir -p $dir && cd $dir || exit 1

check "a pipe carries all lines" 1000 "$(seq 1000 | cat | wc -l | tr -d ' ')"
check "a long pipe keeps the order" "1000 999 998" "$(seq 1000 | sort -rn | head -3 | xargs echo)"
check "a pipe's reader may leave early" "1" "$(seq 100000 | head -1)"
check "arithmetic" 5050 "$(i=0; s=0; while [ $i -lt 101 ]; do s=$((s + i)); i=$((i + 1)); done; echo $s)"

forks=0
while [ $forks -lt 300 ]; do
    /bin/busybox true || break
    forks=$((forks + 1))
done
check "300 forks and programs" 300 $forks

check "a here-document" "two words 3" "$(cat <<END
two words $((1 + 2))
END
)"

echo one > out && echo two >> out && cat < out > copy
check "redirections" "one two" "$(xargs echo < copy)"
ls /no/such/name 2> errors
check "errors have a place of their own" 1 "$(wc -l < errors | tr -d ' ')"

(exit 7)
check "a subshell's status" 7 $?
sh -c 'exit 300'
check "a status has 8 bits" 44 $?
/no/such/program 2> errors
check "a program that is not there" 127 $?
echo text > plain && ./plain 2> errors
check "a file without the right to be executed" 126 $?

sleep 0.2 & one=$!
(exit 3) & two=$!
wait $two
check "the status of a background job" 3 $?
wait $one
check "a job that sleeps ends" 0 $?

sleep 60 & victim=$!
kill $victim
wait $victim 2> errors
check "a killed job" 143 $?
sleep 60 & victim=$!
kill -9 $victim
wait $victim 2> errors
check "a job that cannot refuse" 137 $?

caught=no
trap 'caught=yes' USR1
kill -USR1 $$
check "a trap" yes $caught
trap - USR1
check "a trap at the end" "last" "$(trap 'echo last' EXIT; exit 0)"

dd if=/dev/zero of=zeros bs=4096 count=256 2> errors
check "dd writes all its blocks" 1048576 "$(wc -c < zeros | tr -d ' ')"
check "a known sum" b6d81b360a5672d80c27430f39153e2c "$(md5sum < zeros | cut -d' ' -f1)"
dd if=zeros of=part bs=1000 skip=3 count=5 2> errors
check "dd seeks" 5000 "$(wc -c < part | tr -d ' ')"

mkdir -p tree/a/b/c && seq 5000 > tree/a/b/c/numbers && ln -s b/c/numbers tree/a/link
cp -r tree twin
check "a copied tree" "$(md5sum < tree/a/b/c/numbers)" "$(md5sum < twin/a/b/c/numbers)"
mv twin moved
[ -d moved/a/b ] && [ ! -e twin ]
check "a moved tree" 0 $?
check "a link leads to its file" 5000 "$(wc -l < tree/a/link | tr -d ' ')"
rm -r tree moved
[ -e tree ] || [ -e moved ]
check "a removed tree" 1 $?
[ -f zeros ] && [ ! -f . ] && [ -d . ] && [ -s zeros ]
check "test knows files" 0 $?

find / -xdev 2> errors | sort > names
[ "$(wc -l < names)" -gt 50 ] && grep -qx /bin/busybox names
check "find walks the tree" 0 $?
check "grep and sed" "b3" "$(printf 'a1\nb2\nc3\n' | grep b | sed 's/2/3/')"
check "awk adds" 55 "$(seq 10 | awk '{ s += $1 } END { print s }')"
tar -cf all.tar out copy zeros && mkdir un && tar -xf all.tar -C un && cmp zeros un/zeros
check "tar there and back" 0 $?
gzip -c zeros | gunzip -c | cmp - zeros
check "gzip there and back" 0 $?

if [ -r /proc/self/stat ]; then
    ps > processes
    grep -q 'script.sh\|session.sh' processes
    check "ps sees this script" 0 $?
    grep -q '^MemFree: .* kB$' /proc/meminfo
    check "meminfo" 0 $?
    grep -q '^cpu ' /proc/stat
    check "stat" 0 $?
fi

group=/sys/fs/cgroup/session.$$
if mkdir $group 2> errors && [ -w $group/memory.max ]; then
    echo 8M > $group/memory.max
    eat="dd if=/dev/zero of=/dev/null bs=32M count=1"
    sh -c "echo 0 > $group/cgroup.procs; $eat" 2> errors
    check "a process over the limit of its group ends" 137 $?
    $eat 2> errors
    check "others do not" 0 $?
    check "the group has counted it" 1 "$(sed -n 's/^oom_kill //p' $group/memory.events)"
    rmdir $group
    check "an empty group goes" 0 $?
fi

children=0
while [ $children -lt 20 ]; do
    (seq 200 | sort -n > job.$children) &
    children=$((children + 1))
done
wait
check "20 pipelines at once" 4000 "$(cat job.* | wc -l | tr -d ' ')"

cd / && rm -r $dir
check "all is cleaned up" 0 $?
verdict=/sys/kernel/mm/quire/check
if [ -r $verdict ]; then
    sleep 0.2
    check "the library's walkers find all in order" ok "$(cut -d ' ' -f 1 $verdict)"
fi
echo "session: $bad failed"
[ $bad -eq 0 ]

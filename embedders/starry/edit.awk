# Applies a list of edits to packages: awk -v packages=DIR -f edit.awk edits.txt
# See edits.txt for its form. Says in one sentence what is not where it was.

function fail(sentence) { print sentence > "/dev/stderr"; failed = 1; exit 3 }

function load(path,   line) {
    count = 0
    while ((getline line < path) > 0) text[++count] = line
    close(path)
    if (count == 0) fail("upstream moved: package " package " has no file " file ".")
}

function store(path,   n) {
    if (path == "") return
    for (n = 1; n <= count; n++) print text[n] > path
    close(path)
}

# The number of the only line that is `wanted`.
function only(wanted,   n, found) {
    for (n = 1; n <= count; n++) if (text[n] == wanted) { if (found) found = -1; else found = n }
    if (found < 1) fail("upstream moved: " file " of " package " has no single line `" wanted "`.")
    return found
}

# The first such line from `from` on.
function next_one(wanted, from,   n) {
    for (n = from; n <= count; n++) if (text[n] == wanted) return n
    fail("upstream moved: " file " of " package " has no line `" wanted "` behind an anchor.")
}

# Puts new[1..added] in the place of lines first..last.
function replace(   n, kept, rest) {
    kept = 0
    for (n = last + 1; n <= count; n++) rest[++kept] = text[n]
    count = first - 1
    for (n = 1; n <= added; n++) text[++count] = new[n]
    for (n = 1; n <= kept; n++) text[++count] = rest[n]
    added = 0
}

inside { if ($0 == "end") { inside = 0; replace() } else new[++added] = $0; next }
/^#/ || /^$/ { next }
/^package / { store(path); path = ""; package = $2; next }
/^file / { store(path); file = $2; path = packages "/" package "/" file; load(path); next }
/^at / { first = last = only(substr($0, 4)); next }
/^to / { last = next_one(substr($0, 4), first); next }
/^until / { last = next_one(substr($0, 7), first + 1) - 1; next }
/^put$/ { inside = 1; added = 0; next }
{ fail("edits: what is `" $0 "`?") }
END { if (!failed) store(path) }

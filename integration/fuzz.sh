#!/bin/sh
# Runs every fuzz target of the tree for the given time each (default 1m). An input is made
# smaller for five seconds at most: the usual minute may be all that there is, and what it
# executes is counted at its end only, so a busy machine would show "execs: 0".
set -eu
time=${1:-1m}
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz'); do
	pkg=./$(dirname "$file")
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d' ' -f2); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5s "$pkg"
	done
done

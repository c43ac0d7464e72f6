#!/bin/sh
# Runs every fuzz target of the tree for the given time each (default 1m).
set -eu
time=${1:-1m}
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz'); do
	pkg=./$(dirname "$file")
	for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d' ' -f2); do
		echo "== $pkg $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg"
	done
done

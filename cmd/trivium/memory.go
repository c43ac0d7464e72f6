package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory tells the runtime to collect garbage in time, and to give it back,
// rather than let the heap grow beyond three quarters of what the process may
// use; the rest is for the page cache. GOMEMLIMIT in the environment has another
// word, and what is set, if not 0, the last. It returns the limit in bytes, 0 if
// there is none.
func limitMemory(set int64) int64 {
	if set > 0 {
		debug.SetMemoryLimit(set)
	} else if os.Getenv("GOMEMLIMIT") == "" {
		if available := availableMemory(os.DirFS("/")); available > 0 {
			debug.SetMemoryLimit(available / 4 * 3)
		}
	}
	limit := debug.SetMemoryLimit(-1) // only asks
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// availableMemory is the smaller of the machine's memory and the limits of the
// control groups that the process is in; 0 = not known, as where there is no
// /proc.
func availableMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	take := func(n int64) {
		if n > 0 {
			least = min(least, n)
		}
	}
	for line := range lines(root, "proc/meminfo") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			take(number(f[1]) * 1024)
		}
	}
	for line := range lines(root, "proc/self/cgroup") {
		f := strings.SplitN(line, ":", 3) // cgroups(7): number:controllers:path
		if len(f) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		if f[1] == "memory" { // version 1
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if f[1] != "" {
			continue
		}
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			for line := range lines(root, path.Join(base, dir, file)) {
				take(number(line))
			}
			if dir == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// lines yields the lines of a file, none if it cannot be read.
func lines(root fs.FS, name string) func(yield func(string) bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return func(func(string) bool) {}
	}
	return strings.Lines(string(b))
}

// number is the number that a line consists of, 0 if it does not ("max").
func number(line string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil || n > math.MaxInt64/1024 {
		return 0 // version 1 says "no limit" with a number about 2^63
	}
	return n
}

package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// chance is Go source, for the end of runtime/rand.go.
//
//go:embed chance.txt
var chance string

// children is Go source, for the end of context/context.go.
const children = `
// replayChildren lists the children as they came. c.mu is held.
func (c *cancelCtx) replayChildren() []canceler {
	list := make([]canceler, 0, len(c.children))
	for child, n := range c.children {
		i := len(list)
		for list = append(list, child); i > 0 && c.children[list[i-1]] > n; i-- {
			list[i] = list[i-1]
		}
		list[i] = child
	}
	return list
}
`

// file is a file of the toolchain and what is changed in it.
type file struct {
	name  string // below GOROOT/src
	edits []edit
	end   string // added at the end
}

// edit puts something in the place of something else, which must be there once.
type edit struct{ from, to string }

// files are all changes. What they are for says chance.txt.
var files = []file{
	{name: "runtime/rand.go", end: chance, edits: []edit{
		// What is drawn before a bubble begins, for hashes say, is the same each time, and
		// does not depend on threads.
		{"	\"internal/runtime/math\"\n", "	\"internal/runtime/atomic\"\n	\"internal/runtime/math\"\n"},
		{"	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
		{"	mp.cheaprand = rand()\n", "	mp.cheaprand = bootstrapRand()\n"},
		// math/rand, maps, hash/maphash, sync.Map, sync.Pool
		{"	mp := getg().m\n	c := &mp.chacha8\n", "	if true {\n		return replayRand()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	}},
	{name: "runtime/synctest.go", edits: []edit{
		{"	id      uint64 // unique id\n", "	id      uint64 // unique id\n	chance  replayChance\n"},
		{"	bubble.now = synctestBaseTime\n", "	bubble.now = synctestBaseTime\n	bubble.chance.begin()\n"},
	}},
	{name: "runtime/select.go", edits: []edit{
		{"	gp := getg()\n	if debugSelect {\n", "	replayYield()\n	gp := getg()\n	if debugSelect {\n"},
		{"cheaprandn(uint32(norder + 1))", "replayRandn(uint32(norder + 1))"},
	}},
	{name: "runtime/time.go", edits: []edit{
		{"			t.rand = cheaprand()\n", "			t.rand = replayRandn(1<<32 - 1)\n"},
	}},
	{name: "runtime/chan.go", edits: []edit{
		{"func chansend(c *hchan, ep unsafe.Pointer, block bool, callerpc uintptr) bool {\n", "func chansend(c *hchan, ep unsafe.Pointer, block bool, callerpc uintptr) bool {\n	replayYield()\n"},
		{"func chanrecv(c *hchan, ep unsafe.Pointer, block bool) (selected, received bool) {\n", "func chanrecv(c *hchan, ep unsafe.Pointer, block bool) (selected, received bool) {\n	replayYield()\n"},
		{"func closechan(c *hchan) {\n", "func closechan(c *hchan) {\n	replayYield()\n"},
	}},
	{name: "runtime/sema.go", edits: []edit{
		// A mutex has waited long enough for starvation by the clock of the bubble.
		{"func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n	if b := replayBubble(); b != nil {\n		return b.now\n	}\n"},
	}},
	{name: "runtime/proc.go", edits: []edit{
		// Nobody is preempted, but who has run for very long.
		{"const forcePreemptNS = 10 * 1000 * 1000 // 10ms\n", "const forcePreemptNS = 10 * 1000 * 1000 * 1000\n"},
		// Others do not run while a goroutine of a bubble is in a system call.
		{"			// Not in a syscall, or something changed out from under us.\n			goto done\n		}\n",
			"			// Not in a syscall, or something changed out from under us.\n			goto done\n		}\n		if thread.gp.bubble != nil && thread.gp.bubble.chance.on {\n			thread.resume()\n			goto done\n		}\n"},
		// The queue of the processor is the bubble's alone, the common one is everybody else's.
		{"	if preempted && sched.gcwaiting.Load() {\n", "	if gp.bubble != nil && replaying() {\n		runqput(pp, gp, false)\n	} else if preempted && sched.gcwaiting.Load() {\n"},
		{"func globrunqgetbatch(n int32) (gp *g, q gQueue) {\n", "func globrunqgetbatch(n int32) (gp *g, q gQueue) {\n	if replaying() {\n		n = 1\n	}\n"},
		{"func runqput(pp *p, gp *g, next bool) {\n", "func runqput(pp *p, gp *g, next bool) {\n	if gp.bubble == nil && replaying() {\n		lock(&sched.lock)\n		globrunqput(gp)\n		unlock(&sched.lock)\n		return\n	}\n"},
		{"	if randomizeScheduler && next && randn(2) == 0 {\n", "	if next && gp.bubble.replayLast() {\n		next = false\n	}\n	if randomizeScheduler && next && randn(2) == 0 {\n"},
		{"		pp.runq[t%uint32(len(pp.runq))].set(gp)\n		atomic.StoreRel(&pp.runqtail, t+1)", "		pp.runq[t%uint32(len(pp.runq))].set(gp)\n		gp.bubble.replayMix(pp, h, t)\n		atomic.StoreRel(&pp.runqtail, t+1)"},
	}},
	// A context ends those that derive from it in their order, and not by their addresses.
	{name: "context/context.go", end: children, edits: []edit{
		{"	children map[canceler]struct{} // set", "	added    uint64\n	children map[canceler]uint64 // set"},
		{"make(map[canceler]struct{})", "make(map[canceler]uint64)"},
		{"			p.children[child] = struct{}{}\n", "			p.added++\n			p.children[child] = p.added\n"},
		{"	for child := range c.children {\n", "	for _, child := range c.replayChildren() {\n"},
	}},
	{name: "internal/sync/runtime.go", end: "\n//go:linkname runtime_replayYield\nfunc runtime_replayYield()\n"},
	{name: "internal/sync/mutex.go", edits: []edit{
		{"	// Fast path: grab unlocked mutex.\n", "	runtime_replayYield()\n"},
		{"	// Fast path: drop lock bit.\n	new := atomic.AddInt32(&m.state, -mutexLocked)\n	if new != 0 {\n", "	defer runtime_replayYield()\n	new := atomic.AddInt32(&m.state, -mutexLocked)\n	if new != 0 {\n"},
	}},
}

// apply makes the changes to the text of a file.
func (f *file) apply(text string) (string, error) {
	for _, e := range f.edits {
		if n := strings.Count(text, e.from); n != 1 {
			return "", fmt.Errorf("this toolchain is not known: it has %d times, and not once,\n%s", n, e.from)
		}
		text = strings.Replace(text, e.from, e.to, 1)
	}
	return text + f.end, nil
}

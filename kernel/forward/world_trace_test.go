package forward

import (
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// tracing is what TRIVIUM_TRACE asks for: "sum" for a sum of all that happens in a
// history, anything else for the words as well.
var tracing = os.Getenv("TRIVIUM_TRACE")

// wtrace is what happened in a history, in order: what clients do and are told, what
// passes on the wires, what the disk is asked for. Two runs with the same sum are the same.
type wtrace struct {
	on   bool
	mu   sync.Mutex
	sum  uint64
	n    int
	text []byte
}

// note adds something that happened.
func (t *wtrace) note(what string, data ...byte) {
	if !t.on {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %d %s %x", t.sum, time.Now().UnixNano(), what, data)
	t.sum, t.n = h.Sum64(), t.n+1
	if tracing != "sum" && tracing != "" {
		t.text = fmt.Appendf(t.text[:0], "%s %s %x\n", time.Now().Format("04:05.000"), what, t.sum)
		_, _ = os.Stderr.Write(t.text)
	}
}

// disk notes what a file system is asked for.
func (t *wtrace) disk(fs vfs.FS) vfs.FS {
	if !t.on {
		return fs
	}
	return vfs.NewFault(fs, vfs.Rule{Before: func(op vfs.Op, name string) { t.note(fmt.Sprintf("disk: %d of %s", op, name)) }})
}

func (t *wtrace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%016x of %d events", t.sum, t.n)
}

// trace says what happens, if TRIVIUM_TRACE is set.
func (w *world) trace(format string, args ...any) {
	if w.events.on {
		w.events.note(fmt.Sprintf(format, args...))
	}
}

package placement

import (
	"github.com/trivium-mq/trivium/kernel"
)

// pending is a publish whose completion is owed.
type pending struct {
	done  kernel.Completion
	token uint64
	batch int32 // index of its batch in the entry
	delta int32 // of its record in the batch
}

// batchResult is what the machine made of one batch.
type batchResult struct {
	base int64 // offset of its first record, -1 if it has not exactly one target
	err  error
}

// commandResult is what the machine made of one command.
type commandResult struct {
	ids []uint64
	err error
}

// flight is what is to be answered when an entry is resolved: applied, or
// certain not to be, or given up.
type flight struct {
	counter  uint64
	term     uint64 // leadership that made its settlements
	pend     []pending
	commands []chan<- commandResult // capacity 1 each, in the order of the entry; nil: nobody asks
	settles  []byte                 // its settlement sections, to repeat them
	changes  []kernel.TopicID       // whose changes end with it
	bytes    int64                  // held against the in-flight budget
	guards   []guarded              // and against gates of full groups
	born     int64                  // when it was proposed, in nanoseconds

	// Set when the log does not know the outcome: any entry applied with a
	// higher term than suspect shows that this one never will be. giveUp is
	// when waiting for that ends, in nanoseconds.
	unknown bool
	suspect uint64
	giveUp  int64
	skipped bool // it may be in a checkpoint that was installed: that it is missing shows nothing

	// Set when it is resolved.
	err      error // of everything in it
	outdated bool  // commands in it were not done
	results  []batchResult
	answers  []commandResult
	keyed    [][]byte // keyed writes to be made before the answers go out
	index    uint64   // log index of the entry
}

// result returns the outcome of one publish.
func (f *flight) result(p *pending) kernel.Result {
	if f.err != nil {
		return kernel.Result{Offset: -1, Err: f.err}
	}
	switch {
	case int(p.batch) < len(f.results):
	case f.outdated:
		return kernel.Result{Offset: -1, Err: errUnknown}
	default:
		return kernel.Result{Offset: -1}
	}
	r := f.results[p.batch]
	if r.err != nil || r.base < 0 {
		return kernel.Result{Offset: -1, Err: r.err}
	}
	return kernel.Result{Offset: r.base + int64(p.delta)}
}

// reset empties the flight and keeps its slices, unless they have grown far
// beyond the usual.
func (f *flight) reset() {
	const keep = 1 << 14
	clear(f.pend) // lets go of the completions
	clear(f.commands)
	clear(f.results)
	clear(f.answers)
	clear(f.keyed)
	old := *f
	*f = flight{commands: old.commands[:0], answers: old.answers[:0], keyed: old.keyed[:0], changes: old.changes[:0]}
	if cap(old.pend) <= keep {
		f.pend = old.pend[:0]
	}
	if cap(old.settles) <= 4*keep {
		f.settles = old.settles[:0]
	}
	if cap(old.results) <= keep {
		f.results = old.results[:0]
	}
}

package history

import (
	"fmt"
	"sync"
)

// Fence stands for what a lock protects. It goes by fencing tokens: it refuses whoever
// comes with a lower one than it has seen, as that one holds the lock no longer. It
// knows nothing of the lock. Its methods may be called concurrently.
type Fence struct {
	mu      sync.Mutex
	highest int64
	owners  map[int64]string
}

// Take shows it the token of a new holder, before he writes anything. It reports whether
// that is above all that it has seen.
func (f *Fence) Take(token int64, who string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token <= f.highest {
		return false
	}
	if f.owners == nil {
		f.owners = map[int64]string{}
	}
	f.highest, f.owners[token] = token, who
	return true
}

// Write is a write with a token. It reports whether that was taken.
func (f *Fence) Write(token int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return token >= f.highest
}

// Token is a record of a lock's queue: its number, and to whom that was given.
type Token struct {
	Number int64
	Owner  string
}

// Tokens compares what was taken with the log of a lock's queue, from its first record
// on: numbers from 0 on, each once, and taken by its owner if by anybody.
func (f *Fence) Tokens(log []Token) (wrong []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, t := range log {
		if t.Number != int64(i) {
			return append(wrong, fmt.Sprintf("the log has number %d at %d", t.Number, i)) // and so on behind it
		}
	}
	for number, who := range f.owners {
		if number >= int64(len(log)) {
			wrong = append(wrong, fmt.Sprintf("%s has taken %d, which the log has not", who, number))
		} else if owner := log[number].Owner; owner != who {
			wrong = append(wrong, fmt.Sprintf("%s has taken %d, which was given to %s", who, number, owner))
		}
	}
	return wrong
}

// Taken returns how many tokens were taken.
func (f *Fence) Taken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.owners)
}

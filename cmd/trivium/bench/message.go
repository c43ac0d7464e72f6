package bench

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// headerSize is what a benchmark message needs: magic, publisher, sequence,
// send time.
const headerSize = 24

const magic = 0x54524956 // "TRIV"

// stamp writes a message's header into the front of payload.
func stamp(payload []byte, publisher uint32, seq uint64, sent int64) {
	binary.BigEndian.PutUint32(payload, magic)
	binary.BigEndian.PutUint32(payload[4:], publisher)
	binary.BigEndian.PutUint64(payload[8:], seq)
	binary.BigEndian.PutUint64(payload[16:], uint64(sent))
}

// parse reads a message's header.
func parse(payload []byte) (publisher uint32, seq uint64, sent int64, err error) {
	if len(payload) < headerSize || binary.BigEndian.Uint32(payload) != magic {
		return 0, 0, 0, fmt.Errorf("received a message of %d bytes that this run did not send", len(payload))
	}
	return binary.BigEndian.Uint32(payload[4:]), binary.BigEndian.Uint64(payload[8:]), int64(binary.BigEndian.Uint64(payload[16:])), nil
}

var epoch = time.Now()

// now is the monotonic time in nanoseconds since the process started.
func now() int64 { return int64(time.Since(epoch)) }

// ledger remembers, per publisher, which sequence numbers have arrived.
type ledger struct {
	mu         sync.Mutex
	seen       [][]uint64 // publisher -> bitset
	received   uint64
	duplicates uint64
}

func newLedger(publishers int) *ledger { return &ledger{seen: make([][]uint64, publishers)} }

// receive notes a message and returns how many different ones have arrived.
func (l *ledger) receive(publisher uint32, seq uint64) (total uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(publisher) >= len(l.seen) || seq > 1<<36 {
		return l.received - l.duplicates
	}
	l.received++
	set := l.seen[publisher]
	for uint64(len(set)) <= seq/64 {
		set = append(set, 0)
	}
	l.seen[publisher] = set
	bit := uint64(1) << (seq % 64)
	if set[seq/64]&bit != 0 {
		l.duplicates++
	}
	set[seq/64] |= bit
	return l.received - l.duplicates
}

// total returns how many different messages have arrived.
func (l *ledger) total() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.received - l.duplicates
}

// result returns what arrived, how often something came twice, and how many of
// the given confirmed counts (publisher -> messages 0..n-1) are missing.
func (l *ledger) result(confirmed []uint64) (received, duplicates, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, n := range confirmed {
		for seq := range n {
			set := l.seen[p]
			if seq/64 >= uint64(len(set)) || set[seq/64]&(1<<(seq%64)) == 0 {
				lost++
			}
		}
	}
	return l.received, l.duplicates, lost
}

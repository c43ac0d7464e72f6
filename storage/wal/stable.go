package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrKeyNotFound is returned by the stable store. Its text is the one that
// hashicorp/raft compares with.
var ErrKeyNotFound = errors.New("not found")

// Keys of hashicorp/raft that are written in pairs.
const (
	keyVoteTerm      = "LastVoteTerm"
	keyVoteCandidate = "LastVoteCand"
)

// Set stores a value; it is durable when Set returns.
//
// One exception closes a gap in hashicorp/raft, which stores the term of a vote
// and the candidate one after the other: LastVoteTerm waits for LastVoteCand,
// then both go into one frame. A crash in between leaves the vote before.
func (g *Group) Set(key, value []byte) error {
	if len(key) > maxKey || len(value) > maxValue {
		return fmt.Errorf("wal: stable value %q of %d bytes is too large", key, len(value))
	}
	var data []byte
	g.mu.Lock()
	switch string(key) {
	case keyVoteTerm:
		g.voteTerm = append([]byte{}, value...)
		g.mu.Unlock()
		return nil
	case keyVoteCandidate:
		if g.voteTerm != nil {
			data = appendPair(data, keyVoteTerm, g.voteTerm)
			g.voteTerm = nil
		}
	}
	g.mu.Unlock()
	return g.setPairs(appendPair(data, string(key), value))
}

// setPairs stores encoded pairs with one frame.
func (g *Group) setPairs(data []byte) error {
	r := newRequest(g, kindStable)
	defer r.free()
	r.data = data
	return g.w.submit(r)
}

// Get returns a stored value, or ErrKeyNotFound.
func (g *Group) Get(key []byte) ([]byte, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	v, ok := g.kv[string(key)]
	if !ok {
		return nil, ErrKeyNotFound
	}
	return append([]byte{}, v...), nil
}

// SetUint64 stores a number.
func (g *Group) SetUint64(key []byte, value uint64) error {
	return g.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns a stored number, or ErrKeyNotFound.
func (g *Group) GetUint64(key []byte) (uint64, error) {
	v, err := g.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("wal: stable value %q is no number", key)
	}
	return binary.BigEndian.Uint64(v), nil
}

func (g *Group) mergePairs(data []byte) {
	// It was encoded by Set: it cannot fail.
	_ = readPairs(data, g.kv)
}

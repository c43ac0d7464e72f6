package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"testing"
)

// file is a segment in memory.
type file struct{ *bytes.Reader }

func (file) Close() error { return nil }

// holds gives a node segments, by number.
func (m *member) holds(segments map[uint64][]byte, opened *atomic.Int32) {
	r := *m.node.replicas.Load()
	r.Groups = slices.Clone(r.Groups)
	r.Groups[1].Segment = func(id uint64) (Segment, int64, error) {
		b, ok := segments[id]
		if !ok {
			return nil, 0, fmt.Errorf("segment %d: %w", id, fs.ErrNotExist)
		}
		opened.Add(1)
		return file{bytes.NewReader(b)}, int64(len(b)), nil
	}
	m.node.replicas.Store(&r)
}

// TestSegmentFromOthers: a segment comes from whoever has it, from an offset on, from
// another node at each call; that none has it is known when all have said so.
func TestSegmentFromOthers(t *testing.T) {
	list := three(t)
	content := bytes.Repeat([]byte("0123456789"), 60_000)
	var opened [3]atomic.Int32
	list[0].holds(nil, &opened[0])
	list[1].holds(map[uint64][]byte{1: content, 2: content}, &opened[1])
	list[2].holds(map[uint64][]byte{2: content}, &opened[2])
	get := func(id uint64, from int64) ([]byte, error) {
		r, err := list[0].node.Segment(t.Context(), placedGroup, id, from)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		return b, errors.Join(err, r.Close())
	}
	for range 4 {
		for _, from := range []int64{0, 300_001, int64(len(content))} {
			if b, err := get(1, from); err != nil || !bytes.Equal(b, content[from:]) {
				t.Fatalf("%d bytes from %d on: %v", len(b), from, err)
			}
		}
	}
	for range 4 {
		if _, err := get(2, 0); err != nil {
			t.Fatal(err)
		}
	}
	if opened[1].Load() != 14 || opened[2].Load() != 2 {
		t.Fatalf("%d and %d answers", opened[1].Load(), opened[2].Load())
	}
	if _, err := get(3, 0); !errors.Is(err, ErrNoSegment) || !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("what nobody has: %v", err)
	}
	list[2].stop()
	if _, err := get(3, 0); !errors.Is(err, ErrNoSegment) || errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("what nobody has that can be asked: %v", err)
	}
}

package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

func TestManifestCodec(t *testing.T) {
	m := &Manifest{Index: 9, Segments: []SegmentMeta{{3, 100, 0xdead}, {1, 5, 6}}, Partitions: []PartitionMeta{{1, 0, 4}, {8, 2, 2}}}
	b := m.Append(nil)
	got, rest, err := DecodeManifest(append(b, "rest"...))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(m) || string(rest) != "rest" {
		t.Fatalf("%v %q %v", got, rest, err)
	}
	for cut := range b {
		if _, _, err := DecodeManifest(b[:cut]); !errors.Is(err, ErrManifest) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	b[0]++
	if _, _, err := DecodeManifest(b); !errors.Is(err, ErrManifest) {
		t.Fatalf("version: %v", err)
	}
	b[0]--
	binary.BigEndian.PutUint32(b[9:], 1<<31)
	if _, _, err := DecodeManifest(b); !errors.Is(err, ErrManifest) {
		t.Fatalf("huge count: %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	m := &Manifest{Index: 9, Segments: []SegmentMeta{{3, 100, 0xdead}}, Partitions: []PartitionMeta{{1, 0, 4}, {8, 2, 2}}}
	f.Add(m.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, rest, err := DecodeManifest(b)
		if err != nil {
			return
		}
		if again := m.Append(nil); string(again)+string(rest) != string(b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

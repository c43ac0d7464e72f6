package cluster

import (
	"bytes"
	"io"
	"slices"
	"testing"
)

// pinned is a segment that tells when it is closed.
type pinned struct {
	*bytes.Reader
	closed chan<- struct{}
}

func (p pinned) Close() error {
	p.closed <- struct{}{}
	return nil
}

// TestSegmentIsLetGo: a segment that is sent is closed at its end, beyond it, and when
// nobody reads on.
func TestSegmentIsLetGo(t *testing.T) {
	list := three(t)
	content := make([]byte, 8<<20)
	closed := make(chan struct{}, 1)
	r := *list[1].node.replicas.Load()
	r.Groups = slices.Clone(r.Groups)
	r.Groups[1].Segment = func(uint64) (Segment, int64, error) {
		return pinned{bytes.NewReader(content), closed}, int64(len(content)), nil
	}
	list[1].node.replicas.Store(&r)
	for _, from := range []int64{0, int64(len(content)), int64(len(content)) + 1, 5} {
		s, err := list[0].node.Segment(t.Context(), placedGroup, 7, from)
		if err != nil {
			t.Fatal(err)
		}
		if from == 5 {
			_, err = io.ReadFull(s, make([]byte, 10))
		} else {
			var b []byte
			b, err = io.ReadAll(s)
			if want := max(int64(len(content))-from, 0); int64(len(b)) != want {
				t.Errorf("%d bytes from %d on, not %d", len(b), from, want)
			}
		}
		if err != nil {
			t.Error(err)
		}
		_ = s.Close()
		<-closed
	}
}

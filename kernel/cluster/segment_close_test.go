package cluster

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
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

// TestSegmentsThatAreNotTakenMakeRoom: who asks for segments and does not read them has
// no place for ever, while others need what only this node has.
func TestSegmentsThatAreNotTakenMakeRoom(t *testing.T) {
	list := three(t)
	content := make([]byte, 8<<20)
	closed := make(chan struct{}, 1024)
	r := *list[1].node.replicas.Load()
	r.Groups = slices.Clone(r.Groups)
	r.Groups[1].Segment = func(uint64) (Segment, int64, error) {
		return pinned{bytes.NewReader(content), closed}, int64(len(content)), nil
	}
	list[1].node.stall = 200 * time.Millisecond
	list[1].node.replicas.Store(&r)
	id := list[1].node.Self()
	k, err := list[2].node.links.get(t.Context(), id.Raft, id.Address)
	if err != nil {
		t.Fatal(err)
	}
	for range maxSegmentStreams {
		s, err := k.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, methodSegment)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(segmentRequest{Group: placedGroup, ID: 7}); err != nil {
			t.Fatal(err)
		}
	}
	for range maxSegmentStreams {
		<-closed
	}
	var got int64 // on a busy machine it is gone on with, as its users do
	until(t, "another one gets it", func() bool {
		s, err := list[0].node.Segment(t.Context(), placedGroup, 7, got)
		if err != nil {
			return false
		}
		defer s.Close()
		n, _ := io.Copy(io.Discard, s)
		got += n
		return got == int64(len(content))
	})
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// segmentChunk is how many bytes of a segment go in one message.
	segmentChunk = 256 << 10
	// maxSegmentStreams bounds the segments that a node sends at a time.
	maxSegmentStreams = 4
	// segmentStall is how long the other side may leave a message untaken: it would have
	// the place of one that goes on.
	segmentStall = time.Minute
)

// ErrNoSegment: no other node has sent that segment. It matches fs.ErrNotExist if all
// were asked, and said that they have it not.
var ErrNoSegment = errors.New("cluster: no other node has the segment")

// Segment reads a segment of a group from another replica, beginning at a byte: from
// another one at each call, since what one has may be damaged. A read that fails may be
// gone on with from where it has come to. Implements placement.Source.
func (n *Node) Segment(ctx context.Context, group uint32, id uint64, from int64) (io.ReadCloser, error) {
	list := n.others()
	turn, without := int(n.asked.Add(1)), 0
	errs := []error{ErrNoSegment}
	for i := range list {
		p := list[(turn+i)%len(list)]
		r, err := n.openRemote(ctx, p, segmentRequest{Group: group, ID: id, From: from})
		if err == nil {
			return r, nil
		}
		if status.Code(err) == codes.NotFound {
			without++
		}
		errs = append(errs, fmt.Errorf("node %s: %w", p.Node, err))
	}
	if without == len(list) && without > 0 {
		errs = append(errs, fs.ErrNotExist)
	}
	return nil, errors.Join(errs...)
}

// openRemote opens a segment at a node, and has read the first bytes of it.
func (n *Node) openRemote(ctx context.Context, p peer, req segmentRequest) (io.ReadCloser, error) {
	address, err := n.resolve(p.Raft)
	if err != nil {
		return nil, err
	}
	link, err := n.links.get(ctx, p.Raft, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := link.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, methodSegment)
	if err == nil {
		err = s.SendMsg(req)
	}
	if err == nil {
		err = s.CloseSend()
	}
	r := &remoteSegment{stream: s, cancel: cancel}
	if err == nil {
		err = r.next()
	}
	if err != nil && err != io.EOF {
		cancel()
		n.links.check(p.Raft, link)
		return nil, err
	}
	r.err = err
	return r, nil
}

// remoteSegment reads a stream.
type remoteSegment struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	buf    chunk
	rest   []byte
	err    error
}

func (r *remoteSegment) next() error {
	r.rest = nil
	if err := r.stream.RecvMsg(&r.buf); err != nil {
		return err
	}
	r.rest = r.buf.b
	return nil
}

// Read implements io.Reader.
func (r *remoteSegment) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err == nil {
			r.err = r.next()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *remoteSegment) Close() error {
	r.cancel()
	return nil
}

// answerSegment sends a segment.
func (n *Node) answerSegment(s grpc.ServerStream) error {
	from, err := callerOf(s.Context())
	if err != nil {
		return err
	}
	var req segmentRequest
	if err := s.RecvMsg(&req); err != nil {
		return err
	}
	g := n.replicas.Load().group(req.Group)
	if !n.knows(from) {
		return noMember(from) // or the catalog here is behind: others are asked, and this node again
	}
	if from.Cluster == "" || from.Cluster != n.Self().Cluster || g == nil || g.Segment == nil || req.From < 0 {
		return fmt.Errorf("cluster: segment %d of group %d is not here", req.ID, req.Group)
	}
	select {
	case n.sending <- struct{}{}:
		defer func() { <-n.sending }()
	case <-s.Context().Done():
		return s.Context().Err()
	}
	file, size, err := g.Segment(req.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return err
	}
	sent, done := make(chan struct{}, 1), make(chan error, 1)
	n.sends.Go(func() {
		err := send(s, io.NewSectionReader(file, req.From, max(size-req.From, 0)), sent)
		done <- errors.Join(err, file.Close())
	})
	for {
		select {
		case <-sent:
		case err := <-done:
			return err
		case <-time.After(n.stall): // the end of the stream ends send
			return status.Error(codes.DeadlineExceeded, "cluster: what is sent of a segment is not taken")
		}
	}
}

// send sends what it reads, and tells of each message.
func send(s grpc.ServerStream, r io.Reader, sent chan<- struct{}) error {
	for {
		// gRPC may keep what it was given for a while: each message has bytes of its own.
		c := &chunk{b: make([]byte, segmentChunk)}
		k, err := io.ReadFull(r, c.b)
		if k > 0 {
			c.b = c.b[:k]
			if err := s.SendMsg(c); err != nil {
				return err
			}
			select {
			case sent <- struct{}{}:
			default:
			}
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return err
		}
	}
}

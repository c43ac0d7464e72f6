package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// TestRow14BadFrameEnd: a frame without its end octet means that the rhythm is
// lost: nothing after it is read.
func TestRow14BadFrameEnd(t *testing.T) {
	s := newStand(t, 32<<20)
	open := method(&wire.QueueDeclare{Queue: "never"})
	for _, end := range []byte{0, 0xCF, 'A'} {
		send := bytes.Clone(open)
		send[len(send)-1] = end
		s.refused(501, refusal{fmt.Sprint("end ", end), send, fmt.Sprintf("invalid_frame_end_marker,%d", end)})
	}
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages: something was read after the fault", n)
	}
}

// TestRow15FrameTooLarge: the size is judged before anything is allocated, before
// the login by a limit of its own; what is announced and does not come costs no
// more than the largest frame.
func TestRow15FrameTooLarge(t *testing.T) {
	s := newStand(t, 64<<20)
	claim := func(size uint32) []byte { return binary.BigEndian.AppendUint32([]byte{1, 0, 0}, size) }
	for _, size := range []uint32{8193, 1 << 20, 1<<31 - 1, 1<<32 - 1} {
		r := s.rawDial()
		r.bytes(claim(size))
		r.closed(501, fmt.Sprintf("{frame_too_large,%d,8184}", size))
	}
	for _, size := range []uint32{frameMax + 1, 1<<31 - 1, 1<<32 - 1} {
		for range 20 {
			r := s.rawOpen(0)
			r.bytes(claim(size))
			r.closed(501, fmt.Sprintf("{frame_too_large,%d,131064}", size))
		}
	}
	for range 200 {
		s.rawDial().bytes(claim(8000))
		s.rawOpen(0).bytes(claim(frameMax - 8))
	}
	// The eight octets of a frame's own may come on top, as in RabbitMQ.
	r := s.rawOpen(0)
	r.send(1, &wire.QueueDeclare{Queue: "slack"})
	want[wire.QueueDeclareOk](r)
	r.bytes(join(method(&wire.BasicPublish{RoutingKey: "slack"}), header(60, 1, frameMax, 0), frame(wire.FrameBody, 1, make([]byte, frameMax))))
	r.send(1, &wire.BasicGet{Queue: "slack", NoAck: true})
	want[wire.BasicGetOk](r)
}

// TestRow16UnreadableFrames: frames and methods that cannot be decoded.
func TestRow16UnreadableFrames(t *testing.T) {
	s := newStand(t, 32<<20)
	s.refused(501,
		refusal{"type 4", frame(4, 1, nil), "unknown_frame"},
		refusal{"type 255", frame(255, 0, []byte("x")), "unknown_frame"},
		refusal{"method cut short", frame(1, 1, []byte{0, 60, 0, 40, 0, 0, 5, 'a'}), "basic.publish: malformed"},
		refusal{"method of three bytes", frame(1, 1, []byte{0, 60, 0}), ""},
		refusal{"no method", frame(1, 1, nil), ""},
		refusal{"name not UTF-8", method(&wire.QueueDeclare{Queue: "\xff\xfe"}), "not UTF-8"},
		refusal{"surrogate in a name", method(&wire.QueueDeclare{Queue: "\xed\xa0\x80"}), "not UTF-8"},
		refusal{"header cut short", join(publish, frame(2, 1, []byte{0, 60})), ""},
		refusal{"property cut short", join(publish, header(60, 1, 0, 1<<15, 200, 'x')), ""},
		refusal{"flags without end", join(publish, header(60, 1, 0, 1, 0, 1, 0, 1)), ""},
		refusal{"heartbeat with content", frame(8, 0, []byte{1}), ""},
	)
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages", n)
	}
}

// TestRow17UnexpectedFrames: frames in an order that means nothing.
func TestRow17UnexpectedFrames(t *testing.T) {
	s := newStand(t, 32<<20)
	const noMethod = "expected method frame, got non method frame instead"
	s.refused(505,
		refusal{"heartbeat on a channel", frame(8, 1, nil), ""},
		refusal{"header without method", header(60, 1, 0, 0), noMethod},
		refusal{"body without method", frame(3, 1, []byte("x")), noMethod},
		refusal{"header of another class", join(publish, header(50, 1, 0, 0)), "expected content header for class 60, got one for class 50 instead"},
		refusal{"body before header", join(publish, frame(3, 1, []byte("x"))), "expected content header for class 60"},
		refusal{"method before header", join(publish, publish), "expected content header for class 60"},
		refusal{"method in a body", join(publish, header(60, 1, 5, 0), publish), "expected content body, got non content body frame instead"},
		refusal{"second header", join(publish, header(60, 1, 5, 0), header(60, 1, 5, 0)), "expected content body"},
		refusal{"content on channel 0", frame(2, 0, []byte{0, 60}), ""},
	)
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages", n)
	}
}

// TestRow18AnnouncedBodies: what a content header announces is not allocated.
func TestRow18AnnouncedBodies(t *testing.T) {
	s := newStand(t, 64<<20)
	for _, size := range []uint64{1<<29 + 1, 1 << 31, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		s.refused(501, refusal{fmt.Sprint(size, " bytes"), join(publish, header(60, 1, size, 0)), "the limit is 536870912"})
	}
	var silent []*raw // until the end of the test
	for range 50 {
		r := s.rawOpen(0)
		for channel := uint16(1); channel <= 20; channel++ {
			if channel > 1 {
				r.send(channel, &wire.ChannelOpen{})
				want[wire.ChannelOpenOk](r)
			}
			r.bytes(join(wire.AppendMethod(nil, channel, &wire.BasicPublish{RoutingKey: kept}), header(60, channel, 16<<20, 0), frame(3, channel, []byte("x"))))
		}
		silent = append(silent, r)
	}
	r := s.rawOpen(0)
	const size = 16<<20 + 1 // one more than the largest message: skipped, and told
	r.bytes(join(publish, header(60, 1, size, 0)))
	for rest := size; rest > 0; rest -= min(rest, frameMax-8) {
		r.bytes(frame(3, 1, make([]byte, min(rest, frameMax-8))))
	}
	r.channelClosed(406, fmt.Sprintf("PRECONDITION_FAILED - message size %d is larger than configured max size %d", size, 16<<20))
	r.send(1, &wire.BasicGet{Queue: "nothing"})
	r.channelClosed(404, "nothing")
	for _, r := range silent {
		_ = r.nc.Close()
	}
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages: a part of one was taken for one", n)
	}
}

// TestRow19BodyFrames: more body than announced, and body frames of nothing
// without end.
func TestRow19BodyFrames(t *testing.T) {
	s := newStand(t, 32<<20)
	s.refused(501,
		refusal{"one byte more", join(publish, header(60, 1, 3, 0), frame(3, 1, []byte("four"))), "longer than the 3 bytes"},
		refusal{"in the second frame", join(publish, header(60, 1, 3, 0), frame(3, 1, []byte("fo")), frame(3, 1, []byte("ur"))), "longer than the 3 bytes"},
		refusal{"empty ones for ever", join(publish, header(60, 1, 3, 0), bytes.Repeat(frame(3, 1, nil), 5000)), "empty body frames"},
		refusal{"empty ones in between", join(publish, header(60, 1, 1<<20, 0), bytes.Repeat(join(frame(3, 1, nil), frame(3, 1, nil), frame(3, 1, []byte("x"))), 5000)), "empty body frames"},
	)
	empty := method(&wire.BasicPublish{RoutingKey: "empty"})
	s.refused(505, refusal{"body of an empty content", join(empty, header(60, 1, 0, 0), frame(3, 1, nil)), "expected method frame"})
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages", n)
	}
}

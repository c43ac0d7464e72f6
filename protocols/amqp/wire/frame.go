package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Frame types and sizes.
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8

	frameEnd       = 0xCE
	frameHeadSize  = 7
	FrameOverhead  = frameHeadSize + 1 // head and end octet
	MinFrameMax    = 4096              // every peer takes frames of this size
	defaultBuffer  = 4 << 10
	maxIdleBuffer  = 64 << 10 // read buffers grow to this when reads fill them
	shownOctets    = 16       // of a broken frame, in error texts
	heartbeatFrame = "\x08\x00\x00\x00\x00\x00\x00\xce"
)

// Frame is one frame. Payload aliases the reader's buffer.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// FrameError says why the stream of frames cannot be followed any further.
type FrameError struct {
	Type    byte
	Octets  []byte // the first bytes of the payload
	Problem string
}

// Error gives the text RabbitMQ would, but for how the octets are cut.
func (e *FrameError) Error() string {
	shown, which := e.Octets, "all"
	if len(shown) > shownOctets {
		shown, which = shown[:shownOctets], "first "+strconv.Itoa(shownOctets)
	}
	list := make([]string, len(shown))
	for i, o := range shown {
		list[i] = strconv.Itoa(int(o))
	}
	return fmt.Sprintf("type %d, %s octets = <<%s>>: %s", e.Type, which, strings.Join(list, ","), e.Problem)
}

// FrameReader cuts a stream into frames. Not safe for concurrent use.
type FrameReader struct {
	src  io.Reader
	buf  []byte
	r, w int // unread bytes are buf[r:w]
	max  int // largest payload
	full bool
}

// NewFrameReader reads frames whose size, overhead included, is at most
// frameMax.
func NewFrameReader(src io.Reader, frameMax int) *FrameReader {
	f := &FrameReader{src: src, buf: make([]byte, defaultBuffer)}
	f.SetFrameMax(frameMax)
	return f
}

// SetFrameMax changes the largest size of a frame, overhead included. As
// RabbitMQ does, it takes frames whose payload alone is that large, because
// some clients count that way.
func (f *FrameReader) SetFrameMax(n int) { f.max = n }

// Ready reports whether Next will return without reading.
func (f *FrameReader) Ready() bool {
	have := f.buf[f.r:f.w]
	if len(have) < frameHeadSize {
		return false
	}
	size := binary.BigEndian.Uint32(have[3:])
	return uint64(size) > uint64(f.max) || len(have) >= int(size)+FrameOverhead
}

// Next returns the next frame, reading as needed. Payloads returned earlier
// stay valid while Ready reported true before each later call: a call that
// has to read may move or overwrite them. Errors: *FrameError, or the
// reader's own; io.EOF only between frames.
func (f *FrameReader) Next() (Frame, error) {
	if err := f.need(frameHeadSize); err != nil {
		return Frame{}, err
	}
	head := f.buf[f.r:]
	fr := Frame{Type: head[0], Channel: binary.BigEndian.Uint16(head[1:])}
	size := binary.BigEndian.Uint32(head[3:])
	switch fr.Type {
	case FrameMethod, FrameHeader, FrameBody, FrameHeartbeat:
	default:
		return fr, &FrameError{Type: fr.Type, Octets: f.some(int64(size)), Problem: "unknown_frame"}
	}
	if uint64(size) > uint64(f.max) {
		return fr, &FrameError{Type: fr.Type, Problem: fmt.Sprintf("{frame_too_large,%d,%d}", size, f.max-FrameOverhead)}
	}
	n := int(size)
	if err := f.need(n + FrameOverhead); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fr, err
	}
	b := f.buf[f.r : f.r+n+FrameOverhead]
	fr.Payload = b[frameHeadSize : frameHeadSize+n : frameHeadSize+n]
	if end := b[n+frameHeadSize]; end != frameEnd {
		return fr, &FrameError{Type: fr.Type, Octets: fr.Payload, Problem: fmt.Sprintf("{invalid_frame_end_marker,%d}", end)}
	}
	f.r += len(b)
	return fr, nil
}

// some returns what is buffered of a payload that will not be read.
func (f *FrameReader) some(size int64) []byte {
	b := f.buf[f.r+frameHeadSize : f.w]
	return b[:min(int64(len(b)), size)]
}

// ReadRaw reads n bytes that are not a frame: the protocol header.
func (f *FrameReader) ReadRaw(n int) ([]byte, error) {
	if err := f.need(n); err != nil {
		return f.buf[f.r:f.w], err
	}
	b := f.buf[f.r : f.r+n]
	f.r += n
	return b, nil
}

// need reads until n bytes are buffered.
func (f *FrameReader) need(n int) error {
	for f.w-f.r < n {
		f.makeRoom(n)
		got, err := f.src.Read(f.buf[f.w:])
		f.w += got
		f.full = f.w == len(f.buf)
		if err != nil && f.w-f.r < n {
			if err == io.EOF && f.w > f.r {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// makeRoom moves unread bytes to the front and grows the buffer when n do not
// fit in, or when the last read filled it.
func (f *FrameReader) makeRoom(n int) {
	size := len(f.buf)
	if f.full && size < maxIdleBuffer {
		size *= 2
	}
	size = max(size, n)
	if size != len(f.buf) {
		grown := make([]byte, size)
		f.w = copy(grown, f.buf[f.r:f.w])
		f.buf, f.r = grown, 0
		return
	}
	if f.r > 0 {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
}

// beginFrame appends a frame's head; endFrame fills in its size.
func beginFrame(b []byte, kind byte, channel uint16) ([]byte, int) {
	start := len(b)
	return append(b, kind, byte(channel>>8), byte(channel), 0, 0, 0, 0), start
}

func endFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start+3:], uint32(len(b)-start-frameHeadSize))
	return append(b, frameEnd)
}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(b []byte) []byte { return append(b, heartbeatFrame...) }

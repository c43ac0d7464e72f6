package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Bounds of request frames in bytes.
const (
	// maxFrame is the largest request of all (Kafka's socket.request.max.bytes).
	maxFrame = 100 << 20
	// maxGroupFrame is the largest request that carries assignments, metadata or
	// many offsets; maxPlainFrame is that of all others but Produce. They are
	// lower because an array of the smallest elements is decoded into some
	// twenty, or fifty, times its size on the wire.
	maxGroupFrame = 8 << 20
	maxPlainFrame = 1 << 20
	// maxEarlyFrame is the largest request of a peer that may not be anonymous
	// and has not authenticated (Kafka's sasl.server.max.receive.size).
	maxEarlyFrame = 512 << 10
	// firstChunk is how much is allocated on the word of a peer; more follows
	// as bytes arrive.
	firstChunk = 64 << 10
	// keptFrame is the largest buffer a connection keeps between requests.
	keptFrame = 1 << 20
)

// errFrame is wrapped by every reason to close a connection over the form of
// its requests.
var errFrame = errors.New("kafka: malformed request")

// frameReader reads size-delimited requests. The frame it returns is valid
// until the next call.
type frameReader struct {
	src io.Reader
	// arriving is called before each blocking read of a frame's rest.
	arriving func()
	size     [4]byte
	buf      []byte
}

// next reads one frame's size field.
func (f *frameReader) next(limit int) (size int, err error) {
	if n, err := io.ReadFull(f.src, f.size[:]); err != nil {
		if n > 0 { // what was read is lost: no timeout to be tried again
			return 0, fmt.Errorf("%w: size field cut at %d bytes: %v", errFrame, n, err)
		}
		return 0, err
	}
	size = int(int32(binary.BigEndian.Uint32(f.size[:])))
	if size <= 0 || size > limit {
		return 0, fmt.Errorf("%w: frame of %d bytes, the limit is %d", errFrame, size, limit)
	}
	return size, nil
}

// body reads a frame's content. The buffer doubles as bytes arrive, so that a
// peer costs at most twice what it has sent.
func (f *frameReader) body(size int) ([]byte, error) {
	if cap(f.buf) > keptFrame && size <= keptFrame {
		f.buf = nil
	}
	buf := f.buf[:0]
	if cap(buf) == 0 {
		buf = make([]byte, 0, min(size, firstChunk))
	}
	for len(buf) < size {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(size, 2*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		at, end := len(buf), min(size, cap(buf))
		f.arriving()
		n, err := io.ReadFull(f.src, buf[at:end])
		buf = buf[:at+n]
		if err != nil {
			return nil, fmt.Errorf("request of %d bytes cut at %d: %w", size, len(buf), err)
		}
	}
	f.buf = buf
	return buf, nil
}

// frameLimit is the largest request of a kind.
func frameLimit(key int16) int {
	switch key {
	case keyProduce:
		return maxFrame
	case keyJoinGroup, keySyncGroup, keyOffsetCommit:
		return maxGroupFrame
	default:
		return maxPlainFrame
	}
}

const (
	// cheapFrame is the largest request that is decoded whatever else is.
	cheapFrame = 64 << 10
	// decodedMemory is how many bytes of larger ones may be held at one time, all
	// connections together: one of those that carry assignments, or several others.
	decodedMemory = 20 * maxGroupFrame
)

// decodedSize is the most bytes that a request may take once it is decoded, 0 if
// that is not worth counting. The arrays of Produce are counted by checkProduce.
func decodedSize(key int16, size int) int64 {
	switch limit := frameLimit(key); {
	case size <= cheapFrame || limit == maxFrame:
		return 0
	case limit == maxGroupFrame:
		return 20 * int64(size)
	default:
		return 50 * int64(size)
	}
}

// header is the part of a request before its body (request header v1, v2).
type header struct {
	key, version int16
	correlation  int32
	clientID     string
}

// parseHeader reads a request's header; for flexible versions rest still
// begins with the header's tagged fields, see skipTags.
func parseHeader(frame []byte) (h header, rest []byte, err error) {
	b := kbin.Reader{Src: frame}
	h.key, h.version, h.correlation = b.Int16(), b.Int16(), b.Int32()
	if id := b.NullableString(); id != nil {
		h.clientID = *id
	}
	if !b.Ok() {
		return h, nil, fmt.Errorf("%w: header of %d bytes", errFrame, len(frame))
	}
	return h, b.Src, nil
}

// skipTags skips the tagged fields that end a flexible request header.
func skipTags(rest []byte) ([]byte, error) {
	b := kbin.Reader{Src: rest}
	kmsg.SkipTags(&b)
	if !b.Ok() {
		return nil, fmt.Errorf("%w: header tags", errFrame)
	}
	return b.Src, nil
}

// appendHeader begins an answer: room for its size, the correlation id, and
// for flexible versions an empty tag section (response header v0, v1).
func appendHeader(dst []byte, correlation int32, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// patchSize writes the size of the answer that begins at start and ends,
// beyond dst, after more bytes.
func patchSize(dst []byte, start, more int) {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4+more))
}

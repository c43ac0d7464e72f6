package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// kind says what a frame is.
type kind byte

// The kinds, of both directions: see the package's documentation.
const (
	kindOpen kind = 1 + iota
	kindCall
	kindPublisher
	kindPublish
	kindUnpublish
	kindCredit
	kindSettle
	kindPool
	kindPoolLimit
	kindPoolAdd
	kindPoolPut
	kindUnpool
	kindDescribed
	kindLeft
	kindPin
	kindTake
	kindRefuse
	kindUnpin
	kindUnpinNumber
	kindLiveTaken
	kindLetMember
	kindLetCursor
	kindBatch
)

const (
	kindOpened kind = 64 + iota
	kindRefused
	kindResult
	kindRouted
	kindOutcomes
	kindDeliver
	kindEnded
	kindAlarms
	kindLeave
	kindEnd
	kindDescribe
	kindDeclined
	kindClaimed
	kindLive
	kindPinned
	kindTaken
	kindStored
)

const (
	headSize = 5         // bytes before the body
	maxFrame = 192 << 20 // bytes with the head: a message of 128 MiB with all that belongs to it
	// keepBuffer is how large a buffer may be that is used again, and keepPart how large
	// one that a link keeps while nothing is in it.
	keepBuffer = 64 << 10
	keepPart   = 4 << 10
)

// errMalformed matches what is wrong with a stream.
var errMalformed = errors.New("forward: malformed frame")

// beginFrame appends the head of a frame; endFrame, with what it returned as start, puts
// the length in.
func beginFrame(b []byte, k kind) (out []byte, start int) {
	return append(b, 0, 0, 0, 0, byte(k)), len(b)
}

func endFrame(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// frames takes messages apart.
type frames struct {
	part []byte // a frame that is not whole yet
}

// feed calls fn for each frame that is whole with message. The body is valid during the
// call only.
func (f *frames) feed(message []byte, fn func(k kind, body []byte) error) error {
	for len(f.part) > 0 && len(message) > 0 {
		n, err := f.lacks()
		if err != nil {
			return err
		}
		n = min(n, len(message))
		if free := cap(f.part) - len(f.part); free < n { // what was announced is not believed before it is there
			f.part = slices.Grow(f.part, max(n, min(len(f.part), maxFrame-len(f.part))))
		}
		f.part = append(f.part, message[:n]...)
		message = message[n:]
		if n, err = f.lacks(); err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		err = fn(kind(f.part[4]), f.part[headSize:])
		if f.part = f.part[:0]; cap(f.part) > keepPart {
			f.part = nil
		}
		if err != nil {
			return err
		}
	}
	for len(message) > 0 {
		n, err := frameSize(message)
		if err != nil {
			return err
		}
		if n == 0 || n > len(message) {
			f.part = append(f.part, message...)
			return nil
		}
		if err := fn(kind(message[4]), message[headSize:n:n]); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// lacks is how many bytes the part lacks: of its head, or of the frame.
func (f *frames) lacks() (int, error) {
	n, err := frameSize(f.part)
	if n == 0 {
		n = headSize
	}
	return n - len(f.part), err
}

// frameSize is the size of the frame that b begins with, 0 = more of it has to be seen.
func frameSize(b []byte) (int, error) {
	if len(b) < headSize {
		return 0, nil
	}
	n := uint64(binary.LittleEndian.Uint32(b)) + 4
	if n < headSize || n > maxFrame {
		return 0, fmt.Errorf("%w: it is %d bytes long", errMalformed, n)
	}
	return int(n), nil
}

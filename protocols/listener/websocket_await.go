package listener

import (
	"errors"
	"net"
)

// Bits and sizes of the head of a frame (RFC 6455, 5.2).
const (
	finalFrame  = 0x80
	frameKind   = 0x7f // with the reserved bits
	pingFrame   = 0x9
	pongFrame   = 0xa
	maskedFrame = 0x80
	smallHead   = 2 + 4 // with the mask; of what has up to 125 bytes
	maxControl  = 125
)

// await waits until the websocket package finds what it reads next: between messages
// the head of a frame, within one a byte. That package is of no use after a deadline,
// and reading on here is. Pings that come between messages are answered: after them it
// would wait for more.
func (c *webConn) await() error {
	if c.message != nil {
		_, err := c.peek(1)
		return err
	}
	for {
		b, err := c.peek(2)
		if len(b) < 2 {
			return err
		}
		size := int(b[1] &^ maskedFrame)
		if kind := b[0] & frameKind; kind != pingFrame && kind != pongFrame || b[0]&finalFrame == 0 ||
			b[1]&maskedFrame == 0 || size > maxControl {
			_, err = c.peek(headSize(b[1]))
			return err
		}
		if b, err = c.peek(smallHead + size); len(b) < smallHead+size {
			return err
		}
		if c.lost = c.control(b[0]&frameKind, b[2:smallHead], b[smallHead:]); c.lost != nil {
			return c.lost
		}
		_, _ = c.in.Discard(smallHead + size) // it is there
	}
}

// control handles a ping or a pong, and unmasks what it carries.
func (c *webConn) control(kind byte, mask, data []byte) error {
	if kind == pongFrame {
		return nil
	}
	for i := range data {
		data[i] ^= mask[i&3]
	}
	return c.pong(data)
}

// headSize is the size of a frame's head whose second byte is b.
func headSize(b byte) int {
	n := 2
	switch b &^ maskedFrame {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if b&maskedFrame != 0 {
		n += 4
	}
	return n
}

// peek waits for n bytes. The error is that of a deadline; any other one is found again
// by who reads them.
func (c *webConn) peek(n int) ([]byte, error) {
	b, err := c.in.Peek(n)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return b, err
	}
	return b, nil
}

package listener

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// memoryConn reads given bytes and forgets what is written.
type memoryConn struct {
	net.Conn
	in      *bytes.Reader
	written int
}

func (c *memoryConn) Read(b []byte) (int, error)     { return c.in.Read(b) }
func (c *memoryConn) Write(b []byte) (int, error)    { c.written += len(b); return len(b), nil }
func (*memoryConn) Close() error                     { return nil }
func (*memoryConn) SetDeadline(time.Time) error      { return nil }
func (*memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (*memoryConn) SetWriteDeadline(time.Time) error { return nil }
func (*memoryConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*memoryConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }

// FuzzWebSocket: no request and no frames make the upgrade or the stream fail
// otherwise than with an error, and no more comes out than went in.
func FuzzWebSocket(f *testing.F) {
	const request = "GET /mqtt HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
	f.Add([]byte(request), []byte{})
	f.Add([]byte(request), frame(0x02|fin, []byte("hello")))
	f.Add([]byte(request), append(frame(0x02, []byte("he")), append(frame(0x09|fin, []byte("p")), frame(0x00|fin, []byte("llo"))...)...))
	f.Add([]byte(request), append([]byte{0x02 | fin, 0xff, 0x7f}, bytes.Repeat([]byte{0xff}, 11)...))
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), []byte{})
	f.Add([]byte("\x16\x03\x01"), []byte{})
	w := &WebSocket{Path: "/mqtt", Subprotocols: []string{"mqtt"}, MaxMessage: 1 << 16}
	f.Fuzz(func(t *testing.T, head, frames []byte) {
		c := &memoryConn{in: bytes.NewReader(append(bytes.Clone(head), frames...))}
		stream, err := w.upgrade(c)
		if err != nil {
			if stream != nil {
				t.Fatal("a stream and an error")
			}
			return
		}
		read, buf := 0, make([]byte, 512)
		for {
			n, err := stream.Read(buf)
			if read += n; err != nil {
				break
			}
			if n == 0 {
				t.Fatal("neither bytes nor an error")
			}
		}
		if read > len(frames)+len(head) {
			t.Fatalf("%d bytes of %d", read, len(frames))
		}
		if n, err := stream.Read(buf); n != 0 || err == nil {
			t.Fatalf("after the end: %d, %v", n, err)
		}
		if c.written > 2048+2*len(frames)+len(head) {
			t.Fatalf("%d bytes written for %d", c.written, len(frames))
		}
	})
}

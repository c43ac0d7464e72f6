package edge

import (
	"bytes"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Packets of MQTT 5 (MQTT 5, 3).
var (
	connect    = []byte{0x10, 14, 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 60, 0, 0, 1, 'w'}
	subscribe  = []byte{0x82, 9, 0, 1, 0, 0, 3, 'a', '/', 'b', 1}
	publish    = []byte{0x32, 10, 0, 3, 'a', '/', 'b', 0, 7, 0, 'h', 'i'}
	pingreq    = []byte{0xc0, 0}
	disconnect = []byte{0xe0, 0}
)

func web(t *testing.T, at harness.Secure) *websocket.Conn {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"mqtt"}}
	c, _, err := dialer.DialContext(t.Context(), "ws://"+at.WS+"/mqtt", nil)
	harness.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	harness.Must(t, c.SetReadDeadline(time.Now().Add(harness.Patience)))
	return c
}

// stream reads bytes until there are n, or the connection ends.
func stream(c *websocket.Conn, n int) (got []byte, err error) {
	for len(got) < n {
		kind, b, err := c.ReadMessage()
		if err != nil {
			return got, err
		}
		if kind != websocket.BinaryMessage {
			return got, errors.New("a text message")
		}
		got = append(got, b...)
	}
	return got, nil
}

// types lists the packets in a stream by their first byte.
func types(b []byte) (out []byte) {
	for len(b) >= 2 {
		out = append(out, b[0])
		b = b[min(2+int(b[1]), len(b)):]
	}
	return out
}

// TestPacketsAndFrames: all packets in one message, and each byte in a message
// of its own, mean the same (MQTT 5, 6.0.0-3 and 6.0.0-4).
func TestPacketsAndFrames(t *testing.T) {
	a := harness.NewAuthority(t)
	_, at := harness.StartSecure(t, a)
	all := bytes.Join([][]byte{connect, subscribe, publish, pingreq}, nil)
	for name, size := range map[string]int{"in one message": len(all), "straddling messages": 7, "a byte a message": 1} {
		c := web(t, at)
		for part := range chunks(all, size) {
			harness.Must(t, c.WriteMessage(websocket.BinaryMessage, part))
		}
		seen := map[byte]bool{}
		var got []byte
		for !(seen[0x20] && seen[0x90] && seen[0x40] && seen[0x32] && seen[0xd0]) { // CONNACK SUBACK PUBACK PUBLISH PINGRESP
			more, err := stream(c, 1)
			if err != nil {
				t.Fatalf("%s: after %x: %v", name, got, err)
			}
			got = append(got, more...)
			for _, first := range types(got) {
				seen[first] = true
			}
		}
		harness.Must(t, c.WriteMessage(websocket.BinaryMessage, disconnect))
		if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			t.Errorf("%s: the end is %v", name, err)
		}
	}
}

func chunks(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// TestWebSocketRefusals: a text message closes with 1003 (MQTT 5, 6.0.0-1), a
// fifth length byte is malformed (1.5.5), a page of another site stays outside.
func TestWebSocketRefusals(t *testing.T) {
	a := harness.NewAuthority(t)
	_, at := harness.StartSecure(t, a)
	c := web(t, at)
	harness.Must(t, c.WriteMessage(websocket.TextMessage, connect))
	if _, err := stream(c, 1); !websocket.IsCloseError(err, websocket.CloseUnsupportedData) {
		t.Errorf("a text message: %v, want 1003", err)
	}
	c = web(t, at)
	harness.Must(t, c.WriteMessage(websocket.BinaryMessage, connect))
	_, err := stream(c, 1)
	harness.Must(t, err)
	harness.Must(t, c.WriteMessage(websocket.BinaryMessage, []byte{0x30, 0xff, 0xff, 0xff, 0xff, 0x01}))
	got, err := stream(c, 1<<20)
	if len(got) < 3 || got[0] != 0xe0 || got[2] != 0x81 || !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("a fifth length byte: %x, %v, want DISCONNECT 0x81", got, err)
	}
	dialer := websocket.Dialer{Subprotocols: []string{"mqtt"}}
	_, resp, err := dialer.DialContext(t.Context(), "ws://"+at.WS+"/mqtt", http.Header{"Origin": {"https://evil.example.com"}})
	if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("another site: %v", err)
	}
}

// TestDrainOverTLSAndWebSocket: clients are told over these, too, and the
// process ends in time though they do not go.
func TestDrainOverTLSAndWebSocket(t *testing.T) {
	a := harness.NewAuthority(t)
	b, at := harness.StartSecure(t, a, "--node-drain-timeout", "2s")
	all := crowd(t, at, a.Trust(), 40)
	harness.Must(t, useAll(all))
	_ = dial(t, at.AMQP) // in the midst of a handshake
	c := web(t, at)
	harness.Must(t, c.WriteMessage(websocket.BinaryMessage, connect))
	_, err := stream(c, 1)
	harness.Must(t, err)
	begin := time.Now()
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("took %v", took)
	}
	got, err := stream(c, 1<<20)
	if len(got) < 3 || got[0] != 0xe0 || got[2] != 0x8b || !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("told %x, %v, want DISCONNECT 0x8B and 1000", got, err)
	}
}

package listener

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func web(t *testing.T, w WebSocket) *Listener {
	t.Helper()
	w.Path = "/mqtt"
	w.Subprotocols = []string{"mqtt", "mqttv3.1"}
	return listen(t, Options{WebSocket: &w})
}

// upgrade connects a client; server is nil if it was refused.
func upgrade(t *testing.T, l *Listener, path string, header http.Header, protocols ...string) (server net.Conn, client *websocket.Conn, status int) {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: protocols, EnableCompression: true}
	client, resp, err := dialer.DialContext(t.Context(), "ws://"+l.Addr().String()+path, header)
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return nil, nil, resp.StatusCode
	}
	t.Cleanup(func() { _ = client.Close() })
	if resp.Header.Get("Sec-Websocket-Extensions") != "" {
		t.Error("compression was agreed")
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server, client, resp.StatusCode
}

func TestUpgrade(t *testing.T) {
	l := web(t, WebSocket{Origins: []string{"https://app.example.com"}})
	from := func(origin string) http.Header { return http.Header{"Origin": {origin}} }
	for _, test := range []struct {
		name, path string
		header     http.Header
		protocols  []string
		status     int
		agreed     string
	}{
		{"mqtt", "/mqtt", nil, []string{"mqtt"}, 101, "mqtt"},
		{"3.1", "/mqtt", nil, []string{"mqttv3.1"}, 101, "mqttv3.1"},
		{"both", "/mqtt", nil, []string{"mqttv3.1", "mqtt"}, 101, "mqtt"},
		{"none", "/mqtt", nil, nil, 400, ""},
		{"another", "/mqtt", nil, []string{"chat"}, 400, ""},
		{"elsewhere", "/", nil, []string{"mqtt"}, 404, ""},
		{"page of this host", "/mqtt", from("http://127.0.0.1:8080"), []string{"mqtt"}, 101, "mqtt"},
		{"page that is allowed", "/mqtt", from("https://app.example.com"), []string{"mqtt"}, 101, "mqtt"},
		{"page of another host", "/mqtt", from("https://evil.example.com"), []string{"mqtt"}, 403, ""},
		{"page without a host", "/mqtt", from("null"), []string{"mqtt"}, 403, ""},
	} {
		_, client, status := upgrade(t, l, test.path, test.header, test.protocols...)
		if status != test.status || client != nil && client.Subprotocol() != test.agreed {
			t.Errorf("%s: status %d, want %d", test.name, status, test.status)
		}
	}
	any := web(t, WebSocket{Origins: []string{"*"}})
	if _, _, status := upgrade(t, any, "/mqtt", from("https://evil.example.com"), "mqtt"); status != 101 {
		t.Errorf("any origin: status %d", status)
	}
}

// TestRebinding: a page whose host's name its owner has pointed at us is known as
// such; literal addresses, localhost, configured origins and other clients are not.
func TestRebinding(t *testing.T) {
	l := web(t, WebSocket{Origins: []string{"https://app.example.com"}})
	for _, test := range []struct {
		host, origin string
		want         bool
	}{
		{"evil.example:8083", "http://evil.example:8083", true},
		{"localhost:8083", "http://localhost:8080", false},
		{"127.0.0.1:8083", "http://127.0.0.1", false},
		{"[::1]:8083", "http://[::1]", false},
		{"app.example.com", "https://app.example.com", false},
		{"broker.example", "", false},
	} {
		header := http.Header{"Host": {test.host}}
		if test.origin != "" {
			header.Set("Origin", test.origin)
		}
		server, _, status := upgrade(t, l, "/mqtt", header, "mqtt")
		if status != http.StatusSwitchingProtocols {
			t.Errorf("%s: status %d", test.host, status)
		} else if got := Rebindable(server); got != test.want {
			t.Errorf("%s from %q: %v", test.host, test.origin, got)
		}
	}
}

// TestNotHTTP: who speaks something else, or too much, is not answered for long.
func TestNotHTTP(t *testing.T) {
	for name, first := range map[string]string{
		"MQTT": "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\r\n\r\n", "a large header": "GET /mqtt HTTP/1.1\r\nX: " + strings.Repeat("x", 2*maxRequest),
	} {
		failed := make(chan error, 1)
		l := listen(t, Options{WebSocket: &WebSocket{Path: "/mqtt"}, OnError: func(err error) { failed <- err }})
		c := dial(t, l)
		_, _ = io.WriteString(c, first) // may be reset before it is through
		if err := <-failed; !errors.Is(err, ErrNoise) {
			t.Errorf("%s: reported %v", name, err)
		}
	}
}

// frame is a frame of a client.
func frame(first byte, payload []byte) []byte {
	b := []byte{first, 0x80 | byte(len(payload)), 1, 2, 3, 4}
	if len(payload) > 125 {
		b = []byte{first, 0x80 | 126, byte(len(payload) >> 8), byte(len(payload)), 1, 2, 3, 4}
	}
	for i, p := range payload {
		b = append(b, p^byte(i%4+1))
	}
	return b
}

const fin = 0x80

// TestFramesMeanNothing: packets may straddle frames and messages, several may
// be in one, control frames may come between fragments (RFC 6455 5.4; MQTT 5, 6).
func TestFramesMeanNothing(t *testing.T) {
	l := web(t, WebSocket{})
	server, client, _ := upgrade(t, l, "/mqtt", nil, "mqtt")
	raw := client.NetConn()
	var sent []byte
	for _, b := range [][]byte{
		frame(0x02, []byte("ab")), frame(0x09|fin, []byte("ping")), frame(0x00, nil), frame(0x00|fin, []byte("c")), // fragments
		frame(0x02|fin, nil), frame(0x02|fin, []byte("defghi")), frame(0x0a|fin, nil), frame(0x02|fin, bytes.Repeat([]byte("j"), 200)),
	} {
		sent = append(sent, b...)
	}
	for _, b := range sent {
		if _, err := raw.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 209)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "abcdefghi"+strings.Repeat("j", 200) {
		t.Fatalf("read %q, %v", got, err)
	}
	pong := make(chan string, 1)
	client.SetPongHandler(func(data string) error { pong <- data; return nil })
	large := bytes.Repeat([]byte("0123456789"), 10_000)
	if n, err := server.Write(large); n != len(large) || err != nil {
		t.Fatal(n, err)
	}
	kind, message, err := client.ReadMessage()
	if kind != websocket.BinaryMessage || err != nil || !bytes.Equal(message, large) || <-pong != "ping" {
		t.Fatalf("%d bytes of kind %d, %v", len(message), kind, err)
	}
}

// TestFramesRefused: what closes the connection, and with which code (RFC 6455 7.4.1).
func TestFramesRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		send []byte
		code int
	}{
		{"text", frame(0x01|fin, []byte("hello")), websocket.CloseUnsupportedData},
		{"too large", frame(0x02|fin, make([]byte, 2000)), websocket.CloseMessageTooBig},
		{"too large in fragments", append(frame(0x02, make([]byte, 600)), frame(0x00|fin, make([]byte, 600))...), websocket.CloseMessageTooBig},
		{"2^63-1 bytes announced", append([]byte{0x02 | fin, 0xff, 0x7f}, bytes.Repeat([]byte{0xff}, 11)...), websocket.CloseMessageTooBig},
		{"compressed", frame(0x42|fin, []byte{0}), websocket.CloseProtocolError},
		{"not masked", []byte{0x02 | fin, 1, 'a'}, websocket.CloseProtocolError},
		{"unknown kind", frame(0x03|fin, nil), websocket.CloseProtocolError},
		{"continuation of nothing", frame(0x00|fin, nil), websocket.CloseProtocolError},
		{"control frame in fragments", frame(0x09, nil), websocket.CloseProtocolError},
		{"large control frame", frame(0x09|fin, make([]byte, 126)), websocket.CloseProtocolError},
		{"close", frame(0x08|fin, []byte{0x03, 0xe8}), websocket.CloseNormalClosure},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := web(t, WebSocket{MaxMessage: 1000})
			server, client, _ := upgrade(t, l, "/mqtt", nil, "mqtt")
			// A deadline in the past is of what was written then.
			if err := server.SetWriteDeadline(time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			if _, err := client.NetConn().Write(test.send); err != nil {
				t.Fatal(err)
			}
			_, err := io.Copy(io.Discard, server)
			if (err == nil) != (test.code == websocket.CloseNormalClosure) {
				t.Errorf("the server's reader got %v", err)
			}
			if n, again := server.Read(make([]byte, 1)); n != 0 || again == nil {
				t.Error("the reader goes on")
			}
			if _, _, err := client.ReadMessage(); !websocket.IsCloseError(err, test.code) {
				t.Errorf("closed with %v, want %d", err, test.code)
			}
		})
	}
}

// TestWebConnIsANetConn: deadlines work on calls under way, and the end is told.
func TestWebConnIsANetConn(t *testing.T) {
	l := web(t, WebSocket{})
	server, client, _ := upgrade(t, l, "/mqtt", nil, "mqtt")
	if server.RemoteAddr().String() != client.NetConn().LocalAddr().String() {
		t.Errorf("remote address %s", server.RemoteAddr())
	}
	written := make(chan error, 1)
	go func() {
		for { // until the client's window is full
			if _, err := server.Write(make([]byte, 1<<20)); err != nil {
				written <- err
				return
			}
		}
	}()
	read := make(chan error, 1)
	go func() { _, err := server.Read(make([]byte, 1)); read <- err }()
	if err := server.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]chan error{"read": read, "write": written} {
		err := <-got
		if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
			t.Errorf("%s ended with %v", name, err)
		}
	}

	server, client, _ = upgrade(t, l, "/mqtt", nil, "mqtt")
	if err := server.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the client got %v", err)
	}
	_ = client.Close()
	if _, err := io.Copy(io.Discard, server); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Logf("the end: %v", err) // a reset is an end, too
	}
}

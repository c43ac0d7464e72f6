package listener

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// expire reads until a deadline that is over.
func expire(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 8)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d, %v, want a deadline", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// TestReadsOnAfterDeadline: a deadline between messages, within one, behind a ping and
// within the head of a frame does no harm.
func TestReadsOnAfterDeadline(t *testing.T) {
	l := web(t, WebSocket{})
	server, client, _ := upgrade(t, l, "/mqtt", nil, "mqtt")
	raw := client.NetConn()
	write := func(b ...byte) {
		t.Helper()
		if _, err := raw.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(server, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	expire(t, server)
	write(0x82, 0x82, 0, 0, 0, 0, 'a', 'b')
	read("ab")
	expire(t, server)
	write(0x82, 0x83, 0, 0, 0, 0, 'c') // the rest comes later
	read("c")
	expire(t, server)
	write('d', 'e')
	read("de")
	write(0x82)
	expire(t, server)
	write(0xfe, 0, 2, 0, 0)
	expire(t, server)
	write(0, 0, 'f', 'g')
	read("fg")

	pongs := make(chan string, 1)
	client.SetPongHandler(func(data string) error { pongs <- data; return nil })
	go func() { _, _, _ = client.ReadMessage() }() // ends with the connection
	if err := client.WriteControl(websocket.PongMessage, []byte("unasked"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := client.WriteControl(websocket.PingMessage, []byte("there?"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	expire(t, server)
	next := make(chan string, 1)
	go func() {
		b := make([]byte, 1)
		n, _ := server.Read(b)
		next <- string(b[:n])
	}()
	if got := <-pongs; got != "there?" {
		t.Errorf("pong %q", got)
	}
	if err := client.WriteMessage(websocket.BinaryMessage, []byte("h")); err != nil {
		t.Fatal(err)
	}
	if got := <-next; got != "h" {
		t.Errorf("read %q behind the ping", got)
	}
	_ = client.Close()
	if _, err := server.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the end: %v", err)
	}
}

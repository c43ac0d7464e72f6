package listener

import (
	"crypto/tls"
	"io"
	"net"
	"strconv"
	"testing"
)

// BenchmarkWrite compares what a connection with TLS writes with what the
// standard library's does.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64, 4 << 10, 64 << 10} {
		for _, own := range []bool{true, false} {
			b.Run(strconv.Itoa(size)+"/own="+strconv.FormatBool(own), func(b *testing.B) { benchmarkWrite(b, size, own) })
		}
	}
}

func benchmarkWrite(b *testing.B, size int, own bool) {
	a := newAuthority(b)
	secure := a.tls(TLSOptions{})
	l, err := Listen("127.0.0.1:0", Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	client := tls.Client(raw, a.trust())
	defer client.Close()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	var server net.Conn
	if own {
		if server, err = secure.handshake(c.(*conn)); err != nil {
			b.Fatal(err)
		}
	} else {
		server = tls.Server(c, secure.outer)
	}
	defer server.Close()
	buf := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := server.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
}

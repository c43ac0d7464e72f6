package mqtt

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// FuzzConn feeds hostile bytes to a connection, before and after CONNECT: it
// never panics, always ends, and everything it says is a packet.
func FuzzConn(f *testing.F) {
	for _, v := range []byte{wire.V311, wire.V5} {
		sub := wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: "a/#", QoS: 1}, {Name: "$share/g/a", QoS: 0}}}
		uns := wire.UnsubscribeRequest{ID: 2, Filters: []string{"a/#"}}
		session := bytes.Join([][]byte{
			sub.Append(nil, v), publishPacket(v, 1, 5, "a/b", "x"), publishPacket(v, 0, 0, "a", "y"),
			wire.AppendAck(nil, wire.Puback, v, 1, wire.Success), wire.AppendPingreq(nil), uns.Append(nil, v),
			wire.AppendDisconnect(nil, v, wire.DisconnectWithWill, ""),
		}, nil)
		f.Add(v, session)
	}
	f.Add(byte(0), []byte{0x10, 0x80, 0x80, 0x80, 0x01})
	f.Add(wire.V5, []byte{0x82, 6, 0, 1, 0, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, version byte, data []byte) {
		r := newRig(t, Limits{})
		a, b := net.Pipe()
		r.wg.Go(func() {
			defer func() { _ = b.Close() }()
			r.srv.handle(b)
		})
		if version == wire.V311 || version == wire.V5 {
			req := wire.ConnectRequest{Version: version, ClientID: "c", SessionExpiry: 9, Will: &wire.Will{Topic: "w", Payload: []byte("x")}}
			data = append(req.Append(nil), data...)
		}
		go func() {
			_, _ = a.Write(data)
			_ = a.Close()
		}()
		said, _ := io.ReadAll(a)
		_ = a.Close()
		r.wg.Wait()
		rd := wire.NewReader(bytes.NewReader(said), 1<<20)
		for {
			first, _, ok, err := rd.Take()
			if err != nil || ok && wire.CheckFlags(first) != nil {
				t.Fatalf("said % x", said)
			}
			if ok {
				continue
			}
			if _, err := rd.Fill(); err != nil {
				return
			}
		}
	})
}

package auth

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// raw5 is an MQTT 5 client that speaks packets.
type raw5 struct {
	t      *testing.T
	conn   net.Conn
	reader *wire.Reader
}

func (n *node) raw5(t *testing.T) *raw5 {
	t.Helper()
	conn, err := net.DialTimeout("tcp", n.MQTT, harness.Patience)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(2*harness.Patience)))
	return &raw5{t, conn, wire.NewReader(conn, 64<<10)}
}

func (c *raw5) send(packet []byte) {
	c.t.Helper()
	_, err := c.conn.Write(packet)
	must(c.t, err)
}

func (c *raw5) next() (kind byte, body []byte) {
	c.t.Helper()
	for {
		first, body, ok, err := c.reader.Take()
		if err == nil && !ok {
			_, err = c.reader.Fill()
		}
		must(c.t, err)
		if ok {
			return first >> 4, body
		}
	}
}

// connect begins with CONNECT and goes on with AUTH until CONNACK.
func (c *raw5) connect(method string, session sasl.Session, data []byte) *wire.ConnectAnswer {
	c.t.Helper()
	req := wire.ConnectRequest{Version: wire.V5, Clean: true, ClientID: "scram", ReceiveMaximum: 10, RequestProblem: true, AuthMethod: method, AuthData: data}
	c.send(req.Append(nil))
	kind, body := c.answer(method, session)
	if kind != wire.Connack {
		c.t.Fatalf("packet %d", kind)
	}
	a, err := wire.ParseConnack(wire.V5, body)
	must(c.t, err)
	return a
}

// answer answers challenges, and returns what comes after them.
func (c *raw5) answer(method string, session sasl.Session) (kind byte, body []byte) {
	c.t.Helper()
	for {
		kind, body := c.next()
		if kind != wire.Auth {
			return kind, body
		}
		a, err := wire.ParseAuth(body)
		must(c.t, err)
		if a.Method != method {
			c.t.Errorf("AUTH with method %q", a.Method)
		}
		if a.Code == wire.Success {
			return kind, body
		}
		_, msg, err := session.Challenge(a.Data)
		must(c.t, err)
		c.send((&wire.AuthExchange{Code: wire.ContinueAuth, Method: method, Data: msg}).Append(nil))
	}
}

func (c *raw5) disconnected(want wire.Code) {
	c.t.Helper()
	kind, body := c.next()
	d, err := wire.ParseDisconnect(wire.V5, body)
	if kind != wire.Disconnect || err != nil || d.Code != want {
		c.t.Errorf("packet %d, %+v, %v; want DISCONNECT 0x%02x", kind, d, err, byte(want))
	}
}

// TestMQTTEnhancedAuthentication: SCRAM in AUTH packets, at CONNECT and again.
func TestMQTTEnhancedAuthentication(t *testing.T) {
	n := closed(t)
	n.user(t, "v")
	n.grant(t, "/", "v", "", "", "")
	begin := func(m func(u, p string) sasl.Mechanism, user, password string) (sasl.Session, []byte) {
		s, msg, err := m(user, password).Authenticate(context.Background(), "")
		must(t, err)
		return s, msg
	}
	for _, m := range mechanisms[1:] {
		t.Run(m.name, func(t *testing.T) {
			c := n.raw5(t)
			s, msg := begin(m.of, "u,=", "u,=")
			a := c.connect(m.name, s, msg)
			if a.Code != 0 || a.AuthMethod != m.name {
				t.Fatalf("CONNACK %+v", a)
			}
			if done, _, err := s.Challenge(a.AuthData); !done || err != nil {
				t.Errorf("the server's proof: %v", err)
			}
			// Again, while the connection is used.
			again := func(user string) (kind byte, body []byte, s sasl.Session) {
				s, msg := begin(m.of, user, user)
				c.send((&wire.AuthExchange{Code: wire.ReAuthenticate, Method: m.name, Data: msg}).Append(nil))
				kind, body = c.answer(m.name, s)
				return kind, body, s
			}
			kind, body, s := again("u,=")
			if kind != wire.Auth {
				t.Fatalf("packet %d", kind)
			}
			proof, _ := wire.ParseAuth(body)
			if done, _, err := s.Challenge(proof.Data); !done || err != nil || proof.Code != wire.Success {
				t.Errorf("the server's proof: %+v, %v", proof, err)
			}
			c.send([]byte{wire.Pingreq << 4, 0})
			if kind, _ := c.next(); kind != wire.Pingresp {
				t.Errorf("packet %d", kind)
			}
			if kind, body, _ = again("v"); kind != wire.Disconnect || body[0] != byte(wire.NotAuthorized) {
				t.Errorf("as another user: packet %d, % x", kind, body)
			}
		})
	}
	m := mechanisms[1]
	s, msg := begin(m.of, "u,=", "wrong")
	if a := n.raw5(t).connect(m.name, s, msg); a.Code != wire.BadCredentials {
		t.Errorf("a wrong password: 0x%02x", byte(a.Code))
	}
	s, msg = begin(m.of, "nobody", "wrong")
	if a := n.raw5(t).connect(m.name, s, msg); a.Code != wire.BadCredentials {
		t.Errorf("a user who is not: 0x%02x", byte(a.Code))
	}
	if a := n.raw5(t).connect("GS2-KRB5", nil, []byte("x")); a.Code != wire.BadAuthMethod {
		t.Errorf("another method: 0x%02x", byte(a.Code))
	}
	if a := n.raw5(t).connect(m.name, nil, []byte("x")); a.Code != wire.NotAuthorized {
		t.Errorf("nonsense: 0x%02x", byte(a.Code))
	}
	for name, tc := range map[string]struct {
		auth wire.AuthExchange
		want wire.Code
	}{
		"another method":        {wire.AuthExchange{Code: wire.ReAuthenticate, Method: "SCRAM-SHA-512"}, wire.BadAuthMethod},
		"a continuation":        {wire.AuthExchange{Code: wire.ContinueAuth, Method: m.name, Data: []byte("x")}, wire.ProtocolError},
		"nonsense":              {wire.AuthExchange{Code: wire.ReAuthenticate, Method: m.name, Data: []byte("x")}, wire.NotAuthorized},
		"the server's last one": {wire.AuthExchange{Code: wire.Success, Method: m.name}, wire.ProtocolError},
	} {
		c := n.raw5(t)
		s, msg := begin(m.of, "u,=", "u,=")
		if a := c.connect(m.name, s, msg); a.Code != 0 {
			t.Fatalf("CONNACK 0x%02x", byte(a.Code))
		}
		c.send(tc.auth.Append(nil))
		t.Log(name)
		c.disconnected(tc.want)
	}
}

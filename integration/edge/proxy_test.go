package edge

import (
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// behind dials with a PROXY header first, as a load balancer does.
func behind(header string) func(network, addr string) (net.Conn, error) {
	return func(network, addr string) (net.Conn, error) {
		c, err := amqp.DefaultDial(harness.Patience)(network, addr)
		if err != nil {
			return nil, err
		}
		_, err = io.WriteString(c, header)
		return c, err
	}
}

const (
	nearV1 = "PROXY TCP4 127.0.0.1 127.0.0.1 40000 5672\r\n"
	farV1  = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\n"
	farV2  = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc6\x33\x64\x01\x9c\x40\x16\x28"
	lone   = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00" // LOCAL: a health check
)

// TestProxiedAddressIsTheClients: guest may come from the loopback only, and
// where a client comes from is what the header says.
func TestProxiedAddressIsTheClients(t *testing.T) {
	b := harness.Start(t, "--proxy-trusted", "127.0.0.0/8", "--amqp-proxy-protocol", "required", "--mqtt-proxy-protocol", "optional")
	for _, test := range []struct {
		name, header string
		ok           bool
	}{
		{"v1 from the loopback", nearV1, true}, {"v2 LOCAL", lone, true}, {"v1 from afar", farV1, false}, {"v2 from afar", farV2, false}, {"no header", "", false},
	} {
		conn, err := amqp.DialConfig("amqp://guest:guest@"+b.AMQP+"/", amqp.Config{Dial: behind(test.header)})
		if (err == nil) != test.ok {
			t.Errorf("AMQP %s: %v", test.name, err)
		}
		if err == nil {
			harness.Must(t, conn.Close())
		}
		c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + b.MQTT).SetAutoReconnect(false).SetProtocolVersion(4).
			SetCustomOpenConnectionFn(func(u *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
				return behind(test.header)("tcp", u.Host)
			}))
		tok := c.Connect()
		tok.WaitTimeout(harness.Patience)
		if want := test.ok || test.header == ""; (tok.Error() == nil) != want {
			t.Errorf("MQTT %s: %v", test.name, tok.Error())
		}
		c.Disconnect(0)
	}
	if !strings.Contains(b.Output(), "192.0.2.7:40000") {
		t.Errorf("the log does not name the client's address:\n%s", b.Output())
	}
}

// TestProxyBeforeTLS: the header comes before the TLS handshake, and WebSocket.
func TestProxyBeforeTLS(t *testing.T) {
	a := harness.NewAuthority(t)
	_, at := harness.StartSecure(t, a, "--proxy-trusted", "127.0.0.1", "--amqp-proxy-protocol", "required")
	conn, err := amqp.DialConfig("amqps://guest:guest@"+at.AMQP+"/", amqp.Config{TLSClientConfig: a.Trust(), Dial: behind(nearV1)})
	harness.Must(t, err)
	harness.Must(t, conn.Close())
}

// Package edge tests what is around the protocols: TLS, WebSocket, the PROXY
// protocol, limits on connections, the configuration.
package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// dialAMQPS connects as guest over TLS.
func dialAMQPS(addr string, config *tls.Config) (*amqp.Connection, error) {
	return amqp.DialConfig("amqps://guest:guest@"+addr+"/", amqp.Config{TLSClientConfig: config, Dial: amqp.DefaultDial(harness.Patience)})
}

// dialMQTT connects without credentials.
func dialMQTT(url, id string, config *tls.Config, set ...func(*mqtt.ClientOptions)) (mqtt.Client, error) {
	o := mqtt.NewClientOptions().AddBroker(url).SetClientID(id).SetAutoReconnect(false).SetTLSConfig(config)
	for _, s := range set {
		s(o)
	}
	c := mqtt.NewClient(o)
	tok := c.Connect()
	if !tok.WaitTimeout(harness.Patience) {
		return nil, fmt.Errorf("no answer from %s", url)
	}
	return c, tok.Error()
}

// TestClientsOverEveryListener: the same message goes in and out over each, large
// ones too.
func TestClientsOverEveryListener(t *testing.T) {
	a := harness.NewAuthority(t)
	b, at := harness.StartSecure(t, a, "--tls-client-auth", "request")
	large := strings.Repeat("0123456789", 90_000)

	t.Run("AMQP", func(t *testing.T) {
		for _, names := range [][]string{nil, {"app"}} { // without and with a certificate
			conn, err := dialAMQPS(at.AMQP, a.Trust(names...))
			harness.Must(t, err)
			defer conn.Close()
			ch, err := conn.Channel()
			harness.Must(t, err)
			harness.Must(t, ch.Confirm(false))
			queue := harness.Name("tls")
			harness.Declare(t, ch, queue)
			for _, body := range []string{"", "small", large} {
				harness.Confirmed(t, ch, "", queue, amqp.Publishing{DeliveryMode: 2, Body: []byte(body)})
				if d, ok, err := ch.Get(queue, true); !ok || err != nil || string(d.Body) != body {
					t.Errorf("%d bytes: got %d, %v %v", len(body), len(d.Body), ok, err)
				}
			}
		}
	})
	for name, url := range map[string]string{
		"MQTT": "ssl://" + at.MQTT, "MQTT over WebSocket": "ws://" + at.WS + "/mqtt", "MQTT over WebSocket over TLS": "wss://" + at.WSS + "/mqtt",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := dialMQTT(url, harness.Name("paho"), a.Trust())
			harness.Must(t, err)
			defer c.Disconnect(0)
			got := make(chan string, 3)
			topic := harness.Name("web")
			harness.Done(t, c.Subscribe(topic, 1, func(_ mqtt.Client, m mqtt.Message) { got <- string(m.Payload()) }))
			for _, body := range []string{"", "small", large} {
				harness.Done(t, c.Publish(topic, 1, false, body))
				if received := harness.Receive(t, got); received != body {
					t.Errorf("%d bytes: got %d", len(body), len(received))
				}
			}
		})
	}
	t.Run("Kafka", func(t *testing.T) { kafkaOverTLS(t, a, at, large) })
	t.Run("HTTP", func(t *testing.T) {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: a.Trust()}}
		resp, err := client.Get("https://" + at.HTTP + "/health/ready")
		harness.Must(t, err)
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	t.Run("mqtt.js", func(t *testing.T) {
		harness.NeedNode(t, "mqtt")
		for _, args := range [][]string{{"ws://" + at.WS + "/mqtt"}, {"wss://" + at.WSS + "/mqtt", a.CA}} {
			out := harness.Client(t, time.Minute, append([]string{"node", "mqttjs_websocket.js"}, args...)...)
			if strings.TrimSpace(out) != "ok 7" {
				t.Errorf("%v: %s", args, out)
			}
		}
	})
	t.Run("kcat", func(t *testing.T) {
		harness.NeedProgram(t, "kcat")
		cert, key := a.ClientFiles("guest") // the user that it names
		out := harness.Client(t, time.Minute, "kcat", "-b", at.Kafka, "-X", "security.protocol=ssl", "-X", "ssl.ca.location="+a.CA,
			"-X", "ssl.certificate.location="+cert, "-X", "ssl.key.location="+key, "-L")
		if !strings.Contains(out, "broker 1 at "+at.Kafka) {
			t.Errorf("kcat says\n%s", out)
		}
	})
	if strings.Contains(b.Output(), " ERR ") || strings.Contains(b.Output(), " WRN ") {
		t.Errorf("the broker complains:\n%s", b.Output())
	}
}

func kafkaOverTLS(t *testing.T, a *harness.Authority, at harness.Secure, large string) {
	c, err := harness.Addresses{Kafka: at.Kafka}.OpenKafka(kgo.DialTLSConfig(a.Trust()), kgo.ConsumeTopics("kafka-tls"))
	harness.Must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for _, body := range []string{"small", large} {
		harness.Must(t, c.ProduceSync(ctx, &kgo.Record{Topic: "kafka-tls", Value: []byte(body)}).FirstErr())
	}
	records, err := harness.Records(ctx, c, 2)
	harness.Must(t, err)
	if string(records[0].Value) != "small" || string(records[1].Value) != large {
		t.Error("other records came back")
	}
}

// TestClientCertificateRequired: without one, or with one of another authority,
// nobody gets in, whatever the protocol.
func TestClientCertificateRequired(t *testing.T) {
	a, stranger := harness.NewAuthority(t), harness.NewAuthority(t)
	_, at := harness.StartSecure(t, a, "--tls-client-auth", "require")
	foreign := a.Trust()
	foreign.Certificates = stranger.Trust("app").Certificates
	for name, config := range map[string]*tls.Config{"none": a.Trust(), "of another authority": foreign} {
		if conn, err := dialAMQPS(at.AMQP, config); err == nil {
			conn.Close()
			t.Errorf("AMQP with certificate %s", name)
		}
		for _, url := range []string{"ssl://" + at.MQTT, "wss://" + at.WSS + "/mqtt"} {
			if c, err := dialMQTT(url, "", config); err == nil {
				c.Disconnect(0)
				t.Errorf("%s with certificate %s", url, name)
			}
		}
	}
	conn, err := dialAMQPS(at.AMQP, a.Trust("app"))
	harness.Must(t, err)
	harness.Must(t, conn.Close())
}
